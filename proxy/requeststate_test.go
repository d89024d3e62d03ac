package proxy

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/storetest"
	"robotsproxy/proxy/inbound"
)

// stateOf returns the state of a request that arrived on no connection.
func stateOf(w http.ResponseWriter, r *http.Request) *requestState {
	h := &Handler{o: Options{Ready: func() error { return nil }}}
	s := &requestState{client: &client{h: h}, in: &inbound.Request{HTTP: r, Method: r.Method, Writer: w}, rules: new(generation)}
	s.rules.Engine = new(policy.Engine)
	s.transfer.in, s.response.s, s.transfer.watch.limit = s.in, s, time.Hour
	return s
}

// TestLateHeadWaitsForAnotherSlot checks that a request whose slot has passed waits for another slot
// shared by all replicas, and is not sent if there is none in time.
func TestLateHeadWaitsForAnotherSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := storetest.NewMemory(2)
		one, other := pace.New(pace.Options{Store: fleet.Join()}), pace.New(pace.Options{Store: fleet.Join()})
		limits := pace.Limits{
			Key: "a.test", PerSecond: 100, Burst: 1, CrawlDelay: 10 * time.Second,
			MaxConcurrent: 9, MaxQueue: 9, MaxWait: 40 * time.Second,
		}
		ready := func(p *pace.Pacer) *pace.Slot {
			s, err := p.Wait(t.Context(), "", limits)
			if err != nil || s.Ready(t.Context()) != nil {
				t.Fatal(err)
			}
			return s
		}
		state := &sending{slot: ready(one), state: permitted, sender: &stateOf(nil, httptest.NewRequest(http.MethodGet, "http://a.test/", nil)).response}
		defer state.slot.Release()
		if began := time.Now(); state.ready(t.Context()) != nil || !time.Now().Equal(began) {
			t.Error("the request waited in its own slot")
		}
		<-time.After(time.Second)
		s, began := ready(other), time.Now()
		s.Sent()
		s.Release()
		if err := state.ready(t.Context()); err != nil || time.Since(began) < 10*time.Second {
			t.Errorf("Ready: %v, after %v", err, time.Since(began))
		}
		<-time.After(time.Second)
		s = ready(other)
		defer s.Release()
		s.Sent()
		s.BackOff(time.Minute, "id")
		if err := state.ready(t.Context()); !errors.Is(err, pace.ErrTooBusy) || state.state == permitted {
			t.Errorf("ready: %v, state %v", err, state.state)
		}
	})
}

// A deadlineWriter is a response whose deadlines call functions.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	onRead, onWrite func()
}

func (w *deadlineWriter) SetReadDeadline(time.Time) error  { w.onRead(); return nil }
func (w *deadlineWriter) SetWriteDeadline(time.Time) error { w.onWrite(); return nil }
func (w *deadlineWriter) EnableFullDuplex() error          { return nil }

// TestBodyEndsWhileItIsAbandoned checks that no further request arrives on a connection whose reads
// were ended although the body was read to its end meanwhile.
func TestBodyEndsWhileItIsAbandoned(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "http://site.test/", strings.NewReader("x"))
	w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
	s := stateOf(w, r)
	body := &clientBody{r.Body, &s.transfer, nil}
	w.onRead = func() {
		if _, err := io.ReadAll(body); err != nil {
			t.Error(err)
		}
	}
	s.transfer.abandon()
	if s.in.EndConnection(s.transfer.flow.uploaded()); w.Header().Get("Connection") != "close" {
		t.Error("the connection is kept")
	}
}

// TestLateInformational checks that a 1xx response that arrives when the watch has ended the transfer
// does not prevent a refusal.
func TestLateInformational(t *testing.T) {
	w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder(), onWrite: func() { t.Error("the writes of the refusal fail") }}
	s := stateOf(w, httptest.NewRequest(http.MethodGet, "http://site.test/", nil))
	s.transfer.watch.ended = errSilent
	s.response.passInterim(&http.Response{StatusCode: http.StatusEarlyHints, Header: http.Header{"Link": {"</a>"}}})
	if len(w.Header()) > 0 {
		t.Errorf("the refusal has the header %v", w.Header())
	}
}

// A lateClient is a client to which the Pacer's End of a transfer comes while something is sent to it.
type lateClient struct {
	*httptest.ResponseRecorder
	late   func()
	failed bool // the rest of the writes was made to fail
}

func (c *lateClient) Write(b []byte) (int, error) {
	c.late()
	return c.ResponseRecorder.Write(b)
}

func (c *lateClient) SetWriteDeadline(t time.Time) error {
	c.failed = c.failed || t.Equal(longAgo)
	return nil
}

// TestLateEndOfATransfer checks that the end of a slow transfer does nothing after its slot was released, as [pace.Transfer]
// demands: neither to the last byte, which waits for the record, nor to a refusal.
func TestLateEndOfATransfer(t *testing.T) {
	for name, send := range map[string]func(*requestState){
		"the last byte": func(s *requestState) {
			s.response.held = []byte("x")
			s.response.sendHeld()
		},
		"a refusal": func(s *requestState) { s.refuse(answerTo(errInternal), errInternal) },
	} {
		t.Run(name, func(t *testing.T) {
			c := &lateClient{ResponseRecorder: httptest.NewRecorder()}
			s := stateOf(c, httptest.NewRequest(http.MethodGet, "http://a.test/", nil))
			c.late = s.transfer.End
			s.transfer.flow.endUpload(uploadComplete)
			s.transfer.begin()
			s.transfer.beginWrite()
			s.transfer.watch.stop()
			s.releaseSlot()
			send(s)
			if c.failed || c.Body.Len() == 0 {
				t.Error("it was broken off")
			}
		})
	}
}

func TestReadAhead(t *testing.T) {
	for _, c := range []struct {
		name, request string
		read          bool
		err           error
	}{
		{"no body", "GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", false, nil},
		{"small body", "POST http://x/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", true, nil},
		{"large body streams", "POST http://x/ HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\nabc", false, nil},
		{"a client that waits for 100 Continue", "POST http://x/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", false, nil},
		{"truncated body", "POST http://x/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabc", false, inbound.ErrMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(c.request)))
			if err != nil {
				t.Fatal(err)
			}
			s := stateOf(nil, r)
			if s.work, err = memory.New(memory.Options{}).Begin("", time.Now()); err != nil {
				t.Fatal(err)
			}
			if err := s.transfer.readAhead(&s.work); !errors.Is(err, c.err) {
				t.Fatalf("got %v, want %v", err, c.err)
			}
			if got := s.transfer.ahead != nil; got != c.read {
				t.Errorf("read ahead: %t, want %t", got, c.read)
			}
		})
	}
}
