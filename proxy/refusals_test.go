package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/proxy/inbound"
)

// refusingHandler is a Handler that only finishes requests, and keeps their reasons.
type refusingHandler struct {
	*Handler
	mu      sync.Mutex // guards reasons
	reasons map[policy.Reason]int
}

func newRefusingHandler() *refusingHandler {
	r := &refusingHandler{reasons: map[policy.Reason]int{}}
	r.Handler = &Handler{o: Options{Audit: r}, refusals: newRefusalLimiter()}
	return r
}

func (r *refusingHandler) Write(rec *audit.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reasons[rec.Decision.Reason]++
	return nil
}

// recorded returns the number of records with a reason.
func (r *refusingHandler) recorded(reason policy.Reason) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reasons[reason]
}

// finishWith ends a request of client with decision d and err.
func (r *refusingHandler) finishWith(ctx context.Context, client string, d policy.Decision, err error, sent bool) (status int) {
	w := httptest.NewRecorder()
	s := stateOf(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://site.test/x", nil))
	s.client.h, s.record.Time = r.Handler, time.Now()
	s.transfer.flow.endUpload(uploadComplete)
	s.wasSent = sent
	s.record.Request.Client, s.record.Decision = client, d
	r.finish(s, err)
	return w.Code
}

func (r *refusingHandler) refused(ctx context.Context, client string) int {
	return r.finishWith(ctx, client, policy.Decision{Reason: policy.ReasonRule}, refusedError{policy.ReasonRule}, false)
}

// TestRefusalsArePaced checks that refusals are recorded immediately and answered at a limited rate.
func TestRefusalsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, began := newRefusingHandler(), time.Now()
		for range refusalBurst {
			r.refused(t.Context(), "lab")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the burst took %v", took)
		}
		for range 2 * refusalsPerSecond {
			if status := r.refused(t.Context(), "lab"); status != http.StatusForbidden {
				t.Fatalf("status %d", status)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("200 more took %v", took)
		}
		began = time.Now()
		var all sync.WaitGroup
		for range refusalsPerSecond {
			all.Go(func() { r.refused(t.Context(), "2001:db8::1") })
			all.Go(func() { r.refused(t.Context(), "lab") })
		}
		synctest.Wait()
		if n := r.recorded(policy.ReasonRule); n != refusalBurst+4*refusalsPerSecond {
			t.Errorf("%d records", n)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the records took %v", took)
		}
		all.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("the immediate refusals took %v", took)
		}
	})
}

// TestOnlyRefusalsArePaced checks that a client over its refusal rate gets all other responses immediately.
func TestOnlyRefusalsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefusingHandler()
		for range refusalBurst {
			r.refused(t.Context(), "lab")
		}
		began := time.Now()
		allowed := policy.Decision{Verdict: policy.Allow, Reason: policy.ReasonNoRule}
		for range 10 {
			r.finishWith(t.Context(), "lab", allowed, nil, true)
			r.finishWith(t.Context(), "lab", allowed, errors.New("the origin broke off"), true)
			r.finishWith(t.Context(), "lab", policy.Decision{}, inbound.ErrMalformed, false)
			r.finishWith(t.Context(), "lab", policy.Decision{Reason: policy.ReasonDenied}, refusedError{policy.ReasonDenied}, false)
			r.finishWith(t.Context(), "lab", allowed, errAborted, false)
			r.refused(t.Context(), "another")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("they took %v", took)
		}
	})
}

// TestWaitsForRefusalsEnd checks that waits end with the client or the proxy, and are bounded in number.
func TestWaitsForRefusalsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, began := newRefusingHandler(), time.Now()
		for range refusalBurst {
			r.refused(t.Context(), "lab")
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		const most = refusalsPerSecond * int(maxRefusalWait/time.Second)
		for range most - 1 { // clients that do not wait
			r.refused(gone, "lab")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("clients that have left were waited for: %v", took)
		}
		var last sync.WaitGroup
		last.Go(func() { r.refused(t.Context(), "lab") })
		synctest.Wait()
		for range 100 {
			if status := r.refused(gone, "lab"); status != http.StatusTooManyRequests {
				t.Fatalf("status %d", status)
			}
		}
		if n, limit := r.recorded(policy.ReasonRule), r.recorded(policy.ReasonLimit); n != refusalBurst+most || limit != 100 {
			t.Errorf("%d records of rules, %d of the limit", n, limit)
		}
		r.refusals.close()
		last.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("the shutdown waited %v", took)
		}
	})
}

// TestRefusedClientsAreForgotten checks that a client is kept only while its burst is not full, and
// that at most maxRefusedClients are kept.
func TestRefusedClientsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefusalLimiter()
		for range refusalBurst + refusalsPerSecond {
			r.take(recordOf("busy"))
		}
		for i := range 2 * maxRefusedClients {
			r.take(recordOf(fmt.Sprintf("10.0.%d.%d", i>>8, i&0xff)))
		}
		if n := len(r.clients); n != maxRefusedClients+1 {
			t.Errorf("%d clients are kept", n)
		}
		if r.take(recordOf("lab")); r.clients["lab"] == nil {
			t.Error("strangers have taken the place of a client of the configuration")
		}
		<-time.After(sweepInterval)
		r.take(recordOf("new"))
		if len(r.clients) > 3 || r.clients["busy"] == nil || r.clients["new"] == nil {
			t.Errorf("%d clients are kept after %v", len(r.clients), sweepInterval)
		}
	})
}

// recordOf returns a record of a client.
func recordOf(client string) *audit.Record {
	return &audit.Record{Request: policy.Request{Client: client}}
}

// TestRefusalsOfManyClients checks that refusals of many strangers are recorded at a limited rate, and that a
// stranger with few refusals and a client of the configuration get theirs beside them.
func TestRefusalsOfManyClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const attackers, seconds = 100, 5
		r := newRefusingHandler()
		for range refusalBurst {
			if status := r.refused(t.Context(), "lab"); status != http.StatusForbidden {
				t.Fatalf("the client of the configuration: %d", status)
			}
		}
		gone, leave := context.WithCancel(t.Context())
		leave() // attackers do not wait
		for second := range seconds {
			for i := range attackers {
				for range 2 * refusalsPerSecond {
					r.refused(gone, fmt.Sprint("10.0.0.", i))
				}
			}
			for range 5 {
				if status := r.refused(t.Context(), "192.0.2.1"); second > 0 && status != http.StatusForbidden {
					t.Errorf("an honest stranger in second %d: %d", second, status)
				}
			}
			<-time.After(time.Second)
			r.refused(t.Context(), "lab")
		}
		n := r.recorded(policy.ReasonRule) - refusalBurst - seconds
		if most := refusalBurstOfAll + (seconds-1)*refusalsOfAll; n > most || n < most/2 {
			t.Errorf("%d records of strangers in %d s, want at most %d", n, seconds, most)
		}
	})
}
