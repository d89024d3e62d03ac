package proxy_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

func TestBodiesPassUnchanged(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	for _, route := range routes {
		origin := route.serve(t, "", func(w http.ResponseWriter, r *http.Request) {
			var n int
			fmt.Sscanf(r.URL.Path, "/%d", &n)
			if r.URL.Query().Has("chunked") {
				w.(http.Flusher).Flush()
			} else {
				w.Header().Set("Content-Length", fmt.Sprint(n))
			}
			if enc := r.URL.Query().Get("encoding"); enc != "" {
				w.Header().Set("Content-Encoding", enc)
			}
			w.Write(noise[:n])
		})
		r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
		c := route.client(r)
		for _, n := range []int{0, 1, 1 << 10, 64 << 10, len(noise)} {
			for _, query := range []string{"", "?chunked", "?encoding=gzip", "?chunked&encoding=br"} {
				t.Run(fmt.Sprintf("%s/%d%s", route.name, n, query), func(t *testing.T) {
					resp, body, err := get(c, fmt.Sprintf("%s/%d%s", origin.URL, n, query))
					testkit.Must(t, err)
					if !bytes.Equal([]byte(body), noise[:n]) {
						t.Errorf("%d bytes, which differ from those sent", len(body))
					}
					if query == "" && resp.ContentLength != int64(n) {
						t.Errorf("length announced: %d", resp.ContentLength)
					}
				})
			}
		}
	}
}

func TestUploadsPassUnchanged(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%d %x %v %s", n, h.Sum(nil), err, r.Trailer.Get("X-Sum"))
	})
	c := start(t, setup{}).client(false)
	noise := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	for _, n := range []int{1, 1000, maxReadAheadForTest, maxReadAheadForTest + 1, len(noise)} {
		for _, form := range []string{"length", "expect", "chunked"} {
			t.Run(fmt.Sprintf("%s/%d", form, n), func(t *testing.T) {
				req, _ := http.NewRequest("POST", origin.URL+"/", bytes.NewReader(noise[:n]))
				trailer := ""
				switch form {
				case "expect":
					req.Header.Set("Expect", "100-continue")
				case "chunked":
					req.ContentLength = -1
					req.Trailer = http.Header{"X-Sum": {"7"}}
					trailer = "7"
				}
				resp, err := c.Do(req)
				testkit.Must(t, err)
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				testkit.Must(t, err)
				if want := fmt.Sprintf("%d %x <nil> %s", n, sha256.Sum256(noise[:n]), trailer); string(body) != want {
					t.Errorf("the origin got %s, want %s", body, want)
				}
			})
		}
	}
}

const maxReadAheadForTest = 64 << 10

// TestPartsAreForwardedImmediately checks that the first part of a body does not wait for the second.
func TestPartsAreForwardedImmediately(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for _, form := range []string{"text/event-stream", "chunked", "length"} {
			t.Run(route.name+"/"+form, func(t *testing.T) {
				release := make(chan struct{})
				origin := route.serve(t, "", func(w http.ResponseWriter, r *http.Request) {
					if form == "length" {
						w.Header().Set("Content-Length", "18")
					} else {
						w.Header().Set("Content-Type", form)
					}
					io.WriteString(w, "data: 1\n\n")
					w.(http.Flusher).Flush()
					<-release
					io.WriteString(w, "data: 2\n\n")
				})
				r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
				resp, err := route.client(r).Get(origin.URL + "/events")
				testkit.Must(t, err)
				defer resp.Body.Close()
				first := make([]byte, 9)
				_, err = io.ReadFull(resp.Body, first)
				testkit.Must(t, err)
				close(release)
				rest, err := io.ReadAll(resp.Body)
				testkit.Must(t, err)
				if string(first)+string(rest) != "data: 1\n\ndata: 2\n\n" {
					t.Errorf("%q %q", first, rest)
				}
			})
		}
	}
}

func TestEventStreamsReleaseTheirSlot(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			<-release
		}
	})
	r := start(t, setup{limits: pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 1, MaxWait: 5 * time.Second, MaxQueue: 9}})
	c := r.client(false)
	resp, err := c.Get(origin.URL + "/events")
	testkit.Must(t, err)
	defer resp.Body.Close()
	if page, _, err := get(c, origin.URL+"/page"); err != nil || page.StatusCode != 200 {
		t.Errorf("a page beside the stream: %v %v", page, err)
	}
	close(release)
}

// TestEventStreamsAreBounded checks that a refusal at the limit of streams names the limit.
func TestEventStreamsAreBounded(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	r := start(t, setup{change: func(o *proxy.Options) { o.Pacer = pace.New(pace.Options{MaxStreams: 1}) }})
	c := r.client(false)
	resp, err := c.Get(origin.URL + "/events")
	testkit.Must(t, err)
	defer resp.Body.Close()
	resp, body, err := get(c, origin.URL+"/more")
	if err != nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, "Too many streams to this host") {
		t.Errorf("%v %v\n%s", resp, err, body)
	}
}

// TestBrokenTransferIsVisible checks that a truncated response never looks complete.
func TestBrokenTransferIsVisible(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for name, raw := range map[string]string{
			"length": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this",
			"chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n",
			"chunk":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nonly this\r\n",
		} {
			t.Run(route.name+"/"+name, func(t *testing.T) {
				origin := route.serve(t, "", func(w http.ResponseWriter, r *http.Request) {
					if r.ProtoMajor == 2 {
						if name == "length" {
							w.Header().Set("Content-Length", "100")
						}
						io.WriteString(w, "only this")
						w.(http.Flusher).Flush()
						panic(http.ErrAbortHandler)
					}
					conn, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					io.WriteString(conn, raw)
					conn.Close()
				})
				r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
				resp, body, err := get(route.client(r), origin.URL+"/")
				if err == nil {
					t.Errorf("%s %q looks complete", resp.Status, body)
				}
				if rec := r.records.last(t, 1); rec.Err == nil || rec.Blocked() {
					t.Errorf("record: %+v", rec)
				}
			})
		}
	}
}

func TestTrailers(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for _, announced := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/announced %t", route.name, announced), func(t *testing.T) {
				origin := route.serve(t, "", func(w http.ResponseWriter, r *http.Request) {
					name := http.TrailerPrefix + "X-Sum"
					if announced {
						name = "X-Sum"
						w.Header().Set("Trailer", name)
					}
					w.(http.Flusher).Flush()
					io.WriteString(w, "body")
					w.Header().Set(name, "7")
				})
				r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
				resp, body, err := get(route.client(r), origin.URL+"/")
				testkit.Must(t, err)
				if body != "body" || resp.Trailer.Get("X-Sum") != "7" {
					t.Errorf("%q, trailer %v", body, resp.Trailer)
				}
			})
		}
	}
}

// TestOverriddenTargets: some servers serve the URL in these fields instead of the judged target.
func TestOverriddenTargets(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			headers := make(chan http.Header, 1)
			origin := route.serve(t, "", func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header })
			r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
			req, err := http.NewRequestWithContext(t.Context(), "GET", origin.URL+"/", nil)
			testkit.Must(t, err)
			for _, name := range []string{"X-Original-Url", "X-Rewrite-Url", "X_original_url", "X-Rewrite_url"} {
				req.Header[name] = []string{"/private"}
			}
			req.Header.Set("X-Http-Method-Override", "GET")
			resp, err := route.client(r).Do(req)
			testkit.Must(t, err)
			resp.Body.Close()
			arrived := <-headers
			for name := range arrived {
				if strings.Contains(strings.ToLower(name), "url") {
					t.Errorf("%s was forwarded", name)
				}
			}
			if arrived.Get("X-Http-Method-Override") == "" {
				t.Errorf("arrived: %v", arrived)
			}
		})
	}
}

func TestHeadsAndRanges(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		origin := route.serve(t, "", func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/204":
				w.WriteHeader(http.StatusNoContent)
			case "/304":
				w.Header().Set("Etag", `"x"`)
				w.WriteHeader(http.StatusNotModified)
			default:
				http.ServeContent(w, r, "x.txt", time.Time{}, strings.NewReader("0123456789"))
			}
		})
		r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
		c := route.client(r)
		for _, ask := range []struct {
			name, method, path, ranges string
			status                     int
			length                     int64
			body                       string
		}{
			{"HEAD has the length", "HEAD", "/x", "", 200, 10, ""},
			{"GET", "GET", "/x", "", 200, 10, "0123456789"},
			{"range", "GET", "/x", "bytes=2-4", 206, 3, "234"},
			{"unsatisfiable range", "GET", "/x", "bytes=20-", 416, -2, ""},
			{"204", "GET", "/204", "", 204, 0, ""},
			{"304", "GET", "/304", "", 304, -2, ""},
		} {
			t.Run(route.name+"/"+ask.name, func(t *testing.T) {
				req, _ := http.NewRequest(ask.method, origin.URL+ask.path, nil)
				if ask.ranges != "" {
					req.Header.Set("Range", ask.ranges)
				}
				resp, err := c.Do(req)
				testkit.Must(t, err)
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				testkit.Must(t, err)
				if resp.StatusCode != ask.status || ask.length != -2 && resp.ContentLength != ask.length || ask.length != -2 && string(body) != ask.body {
					t.Errorf("%s, length %d, %q", resp.Status, resp.ContentLength, body)
				}
			})
		}
	}
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	for _, overTLS := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %t", overTLS), func(t *testing.T) {
			origin := serve(t, overTLS, "User-agent: *\nDisallow: /private\n", func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Connection") != "Upgrade" {
					t.Errorf("%v was forwarded", r.Header)
				}
				conn, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n")
				io.Copy(conn, rw)
			})
			r := start(t, setup{
				origins: []*httptest.Server{origin.Server},
				limits:  pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 1, MaxWait: 5 * time.Second, MaxQueue: 9},
			})
			conn, br, target := net.Conn(nil), (*bufio.Reader)(nil), "/ws"
			if overTLS {
				conn = r.tunnel(origin.host())
				br = bufio.NewReader(conn)
			} else {
				conn, br = r.dial()
				target = origin.URL + target
			}
			// The first frame follows the head immediately.
			io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: "+origin.host()+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly")
			resp, err := http.ReadResponse(br, nil)
			testkit.Must(t, err)
			if resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "websocket" || resp.Header.Get("Sec-Websocket-Accept") != "x" {
				t.Fatalf("%s %v", resp.Status, resp.Header)
			}
			io.WriteString(conn, " late")
			echo := make([]byte, 10)
			_, err = io.ReadFull(br, echo)
			testkit.Must(t, err)
			if string(echo) != "early late" {
				t.Errorf("came back as %q", echo)
			}
			// The slot of the upgraded connection is free again.
			c := r.client(false)
			if resp, _, err := get(c, origin.URL+"/private"); err != nil || resp.StatusCode != 403 {
				t.Errorf("another request: %v %v", resp, err)
			}
			conn.Close()
			if rec := r.records.last(t, 2); rec.Status != 101 || rec.Bytes != 20 {
				t.Errorf("record: %+v", rec)
			}
		})
	}
}

// TestHeadIsPassedOnAtOnce checks that the head of a response does not wait for the body, whose length it
// gives.
func TestHeadIsPassedOnAtOnce(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			release := make(chan struct{})
			origin := route.serve(t, "", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "4")
				w.(http.Flusher).Flush()
				<-release
				io.WriteString(w, "late")
			})
			r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
			resp, err := route.client(r).Get(origin.URL + "/")
			close(release)
			testkit.Must(t, err)
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); string(body) != "late" || err != nil {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
}
