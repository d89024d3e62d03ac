package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

// A slowSink writes a record of an allowed request only after a while, or fails to.
type slowSink struct {
	written atomic.Int64
	fail    atomic.Bool
}

// slowWrite is longer than a response on loopback needs.
const slowWrite = 50 * time.Millisecond

func (s *slowSink) Write(rec *audit.Record) error {
	if rec.Blocked() || rec.Cached {
		return nil
	}
	time.Sleep(slowWrite)
	if s.fail.Load() {
		return audit.ErrUnwritable
	}
	s.written.Add(1)
	return nil
}

// sizedBodies serves bodies of some sizes, with a Content-Length below /sized/ and without below /stream/, and a
// response without a body.
func sizedBodies() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/", http.NotFound)
	for _, n := range []int{0, 1, 100, 100_000} {
		body := strings.Repeat("x", n)
		mux.HandleFunc(fmt.Sprintf("/sized/%d", n), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(n))
			io.WriteString(w, body)
		})
		mux.HandleFunc(fmt.Sprintf("/stream/%d", n), func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			io.WriteString(w, body)
		})
	}
	mux.HandleFunc("/204", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	return mux
}

// TestRecordFirst: with Rules.RecordFirst, a client has read the end of a response only when its
// record is written, and notices if it could not be.
func TestRecordFirst(t *testing.T) {
	testkit.Long(t, "real time")
	t.Parallel()
	mux := sizedBodies()
	plain, secure := httptest.NewServer(mux), httptest.NewUnstartedServer(mux)
	secure.EnableHTTP2 = true
	testca.StartTLS(t, secure)
	defer plain.Close()
	defer secure.Close()
	sink := &slowSink{}
	r := start(t, setup{origins: []*httptest.Server{plain, secure}, change: func(o *proxy.Options) { o.Audit, o.RecordFirst = sink, true }})
	for _, c := range []struct {
		name, origin string
		h2           bool
	}{{"http", plain.URL, false}, {"https by HTTP/1.1", secure.URL, false}, {"https by HTTP/2", secure.URL, true}} {
		client := r.client(c.h2)
		for _, request := range []string{
			"GET /sized/0", "GET /sized/1", "GET /sized/100", "GET /sized/100000", "GET /stream/0", "GET /stream/1", "GET /stream/100000", "GET /204",
			"HEAD /sized/100", "HEAD /stream/100",
		} {
			method, path, _ := strings.Cut(request, " ")
			t.Run(c.name+" "+request, func(t *testing.T) {
				fetch := func() (n int64, err error) {
					req, err := http.NewRequest(method, c.origin+path, nil)
					testkit.Must(t, err)
					resp, err := client.Do(req)
					if err != nil {
						return 0, err
					}
					defer resp.Body.Close()
					return io.Copy(io.Discard, resp.Body)
				}
				before := sink.written.Load()
				n, err := fetch()
				if written := sink.written.Load(); err != nil || written != before+1 {
					t.Errorf("%d bytes, %v: the client has the whole response, and %d records are written", n, err, written-before)
				}
				var want int64
				if method == http.MethodGet {
					fmt.Sscan(path[strings.LastIndexByte(path, '/')+1:], &want)
				}
				if want != n && path != "/204" {
					t.Errorf("%d bytes, want %d", n, want)
				}
				sink.fail.Store(true)
				defer sink.fail.Store(false)
				if _, err := fetch(); err == nil {
					t.Error("the client did not notice that the record could not be written")
				}
			})
		}
	}
}
