package requests

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os/exec"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// The client gets what the origin has sent while the origin still holds the rest: for
// event streams, and for any other body without a length.
func TestStreamsArriveAtOnce(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, contentType := range []string{"text/event-stream", "application/x-ndjson"} {
		for _, scheme := range e2e.Schemes {
			for _, h2 := range []bool{false, true} {
				if h2 && scheme == "http" {
					continue // HTTP/2 is used only inside a tunnel
				}
				t.Run(contentType+"/"+scheme+"/h2="+map[bool]string{true: "yes", false: "no"}[h2], func(t *testing.T) {
					t.Parallel()
					release := make(chan struct{})
					o := e2e.NewOrigin(t, "sse", "")
					o.Handle("/events", e2e.HeldPage(contentType, "data: one\n\n", "data: two\n\n", release))
					resp, err := p.Client(t, h2).Get(o.URL(scheme, "/events"))
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					wantHeld(t, resp.Body, release)
				})
			}
		}
	}
}

// wantHeld reads the first event before it lets the origin send the second.
func wantHeld(t testing.TB, body io.Reader, release chan struct{}) {
	t.Helper()
	first := make(chan string, 1)
	r := bufio.NewReader(body)
	go func() {
		line, _ := r.ReadString('\n')
		first <- line
	}()
	if got := testkit.Within(t, "the first event arrives while the second is held", first); got != "data: one\n" {
		t.Fatalf("first event is %q", got)
	}
	close(release)
	rest, err := io.ReadAll(r)
	if err != nil || string(rest) != "\ndata: two\n\n" {
		t.Errorf("then came %q, %v", rest, err)
	}
}

func TestEventStreamThroughCurl(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "ssecurl", "")
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		for _, version := range []string{"--http1.1", "--http2"} {
			release := make(chan struct{})
			o.Handle("/events", e2e.HeldPage("text/event-stream", "data: one\n\n", "data: two\n\n", release))
			cmd := exec.Command(curl, "-q", "-sSN", version, o.URL(scheme, "/events"))
			cmd.Env = p.Env(t)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill() })
			wantHeld(t, out, release)
			if err := cmd.Wait(); err != nil {
				t.Errorf("curl %s %s: %v", version, scheme, err)
			}
		}
	}
}

// An event stream returns its slot: other pages continue while it is open.
func TestEventStreamHoldsNoPlace(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	o := e2e.NewOrigin(t, "places", "")
	o.Handle("/events", e2e.HeldPage("text/event-stream", "data: one\n\n", "", release))
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"pace.max_concurrent": 1, "pace.max_wait": "5s"}))
	resp, err := p.Client(t, false).Get(o.URL("http", "/events"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/a")); got.Status != http.StatusOK {
		t.Errorf("a page beside an open event stream: %v", got)
	}
}

func TestTrailersAndInterimAnswers(t *testing.T) {
	t.Parallel()
	body := e2e.RandomBytes(5000)
	o := e2e.NewOrigin(t, "trailers", "")
	o.Handle("/trailers", e2e.TrailerPage(body))
	o.Handle("/hints", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Write(body)
	})
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		for _, h2 := range []bool{false, true} {
			client := p.Client(t, h2)
			resp, err := client.Get(o.URL(scheme, "/trailers"))
			if err != nil {
				t.Fatal(err)
			}
			if _, announced := resp.Trailer["X-Digest"]; !announced {
				t.Errorf("%s h2=%v: the trailer is not announced: %v", scheme, h2, resp.Trailer)
			}
			if got := e2e.Read(t, resp); e2e.Digest(got.Body) != e2e.Digest(body) {
				t.Errorf("%s h2=%v: %v", scheme, h2, got)
			}
			if resp.Trailer.Get("X-Digest") != e2e.Digest(body) || resp.Trailer.Get("X-Unannounced") != "yes" {
				t.Errorf("%s h2=%v: trailers %v", scheme, h2, resp.Trailer)
			}
			var hints []int
			trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				hints = append(hints, code)
				return nil
			}}
			req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), http.MethodGet, o.URL(scheme, "/hints"), nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err = client.Do(req); err != nil {
				t.Fatal(err)
			}
			if e2e.Read(t, resp); len(hints) != 1 || hints[0] != http.StatusEarlyHints {
				t.Errorf("%s h2=%v: interim answers %v, want one 103", scheme, h2, hints)
			}
		}
	}
}

func TestUpgradedConnections(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "upgrade", "User-agent: *\nDisallow: /private\n")
	o.Handle("/echo", e2e.EchoPage(t))
	o.Handle("/private/echo", e2e.EchoPage(t))
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"pace.max_concurrent": 1, "pace.max_wait": "5s"}))
	ways := map[string]func() (w *e2e.RawClient, base string, scheme string){
		"plain":   func() (*e2e.RawClient, string, string) { return p.Dial(t), o.URL("http", ""), "http" },
		"CONNECT": func() (*e2e.RawClient, string, string) { return p.Connect(t, o.Hostport("http")), "", "http" },
		"CONNECT, TLS": func() (*e2e.RawClient, string, string) {
			return p.Connect(t, o.Hostport("https")).Secure(t, p, o.Name, "http/1.1"), "", "https"
		},
	}
	for name, open := range ways {
		t.Run(name, func(t *testing.T) {
			w, base, scheme := open()
			e2e.Upgrade(t, w, base+"/echo", o.Hostport(scheme))
			if got := e2e.Get(t, p.Client(t, false), o.URL(scheme, "/a")); got.Status != http.StatusOK {
				t.Errorf("a page beside an upgraded connection: %v", got)
			}
			w.Close()
			other, base, scheme := open()
			other.Send(t, "GET "+base+"/private/echo HTTP/1.1", "Host: "+o.Hostport(scheme), "Connection: Upgrade", "Upgrade: websocket")
			e2e.WantOwn(t, other.Receive(t, http.MethodGet), http.StatusForbidden, "http_request_denied")
			testkit.Eventually(t, "the upgraded connection's record", func() bool {
				for _, r := range e2e.ReadAudit(t, p.Audit) {
					if r.Status == http.StatusSwitchingProtocols && r.URL == o.URL(scheme, "/echo") {
						return true
					}
				}
				return false
			})
		})
	}
}

// The origin closes an upgraded connection, and the client sees the end.
func TestUpgradedConnectionEnds(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "upgradeend", "")
	o.Handle("/bye", func(w http.ResponseWriter, _ *http.Request) {
		e2e.ServeUpgrade(t, w, "", func(rw *bufio.ReadWriter) {
			rw.WriteString("bye")
			rw.Flush()
		})
	})
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		w, base := p.Dial(t), o.URL("http", "")
		if scheme == "https" {
			w, base = p.Connect(t, o.Hostport("https")).Secure(t, p, o.Name), ""
		}
		w.Send(t, "GET "+base+"/bye HTTP/1.1", "Host: "+o.Hostport(scheme), "Connection: Upgrade", "Upgrade: websocket")
		w.Receive(t, http.MethodGet)
		w.SetDeadline(time.Now().Add(testkit.Patience / 3))
		if rest, err := io.ReadAll(w.R); string(rest) != "bye" || err != nil {
			t.Errorf("%s: after 101 came %q, %v", scheme, rest, err)
		}
	}
}

// The WebSocket of Node 24 with proxy variables in the environment.
func TestNodeWebSocket(t *testing.T) {
	t.Parallel()
	node := e2e.NeedPeer(t, "node24")
	o := e2e.NewOrigin(t, "websocket", "User-agent: *\nDisallow: /private\n")
	o.Handle("/ws", e2e.WebSocketPage(t))
	o.Handle("/private/ws", e2e.WebSocketPage(t))
	p := e2e.StartProxy(t, e2e.Unpaced)
	for scheme, ws := range map[string]string{"http": "ws", "https": "wss"} {
		base := ws + "://" + o.Hostport(scheme)
		out := e2e.RunPeer(t, []string{node, e2e.Script("websocket.cjs"), base + "/ws", base + "/private/ws"}, p.Env(t)).Want(t, 0)
		if want := "echo: hello\nrefused\n"; out.Stdout != want {
			t.Errorf("%s: %q, want %q\n%s", scheme, out.Stdout, want, out.Stderr)
		}
		if n := len(o.Pages(scheme)); n != 1 {
			t.Errorf("%s: %d handshakes arrived, want 1", scheme, n)
		}
	}
}
