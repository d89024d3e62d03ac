package proxy_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
)

// unhurried lets nobody wait, and holds up only those whom the host has asked to.
var unhurried = pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 9, MaxWait: time.Second, MaxQueue: 9}

// TestAHostThatAsksForAPauseGetsIt: the record of the answer says how long, and who
// would have to wait too long is told.
func TestAHostThatAsksForAPauseGetsIt(t *testing.T) {
	for _, c := range []struct {
		name, retryAfter string
		status           int
		least, most      time.Duration // of the pause
	}{
		{"429, in seconds", "30", http.StatusTooManyRequests, 29 * time.Second, 30 * time.Second},
		{"503, a date", time.Now().Add(45 * time.Second).UTC().Format(http.TimeFormat), http.StatusServiceUnavailable, 20 * time.Second, 45 * time.Second},
		{"longer than the most", "86400", http.StatusTooManyRequests, 59 * time.Minute, time.Hour},
		{"none is named", "", http.StatusServiceUnavailable, 59 * time.Second, 75 * time.Second},
		{"what cannot be read", "soon", http.StatusServiceUnavailable, 59 * time.Second, 75 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			origin := serve(t, false, "", func(w http.ResponseWriter, _ *http.Request) {
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				w.WriteHeader(c.status)
			})
			r := start(t, setup{limits: unhurried, change: func(o *proxy.Options) { o.BackOff = true }})
			client := r.client(false)
			resp, _, err := get(client, origin.URL+"/1")
			if err != nil || resp.StatusCode != c.status || resp.Header.Get("Retry-After") != c.retryAfter {
				t.Fatalf("the origin's answer is not passed on: %v %v", resp, err)
			}
			if rec := r.records.last(t, 1); rec.BackOff < c.least || rec.BackOff > c.most {
				t.Errorf("the record says %v", rec.BackOff)
			}
			resp, body, err := get(client, origin.URL+"/2")
			must(t, err)
			after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
			if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, "asked to be left alone") ||
				time.Duration(after)*time.Second < c.least || time.Duration(after)*time.Second > c.most+time.Second {
				t.Errorf("who asks meanwhile: %s, Retry-After %d\n%s", resp.Status, after, body)
			}
			if rec := r.records.last(t, 2); !rec.Blocked() || rec.Decision.Reason != policy.ReasonPace || rec.BackOff != 0 || !strings.Contains(rec.Err.Error(), "asked for a pause") {
				t.Errorf("its record: %+v", rec)
			}
			if got := origin.paths(); len(got) != 2 {
				t.Errorf("the origin saw %q", got)
			}
		})
	}
}

func TestBackOffCanBeTurnedOff(t *testing.T) {
	origin := serve(t, false, "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	r := start(t, setup{limits: unhurried})
	client := r.client(false)
	for i := range 2 {
		if resp, _, err := get(client, origin.URL+"/"); err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Proxy-Status") != "" {
			t.Fatalf("%v %v", resp, err)
		}
		if rec := r.records.last(t, i+1); rec.BackOff != 0 {
			t.Errorf("the record says %v", rec.BackOff)
		}
	}
}

// TestSlowAnswersAreInTheRecord: the second request of a slow host says what holds
// it up. An upload's time is the client's doing as well, and does not count.
func TestSlowAnswersAreInTheRecord(t *testing.T) {
	const slow = 1100 * time.Millisecond
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-time.After(slow)
		w.Header().Set("Content-Length", "0")
	})
	limits := unhurried
	limits.Adapt, limits.MaxWait = true, time.Minute
	r := start(t, setup{limits: limits})
	client := r.client(false)
	resp, err := client.Post(origin.URL+"/upload", "text/plain", strings.NewReader("x"))
	must(t, err)
	resp.Body.Close()
	if rec := r.records.last(t, 1); rec.Slowed != 0 {
		t.Errorf("slowed to %v by an upload", rec.Slowed)
	}
	_, _, err = get(client, origin.URL+"/1")
	must(t, err)
	if rec := r.records.last(t, 2); rec.Slowed < slow || rec.Slowed > 2*slow {
		t.Errorf("slowed to %v, want %v", rec.Slowed, slow)
	}
}
