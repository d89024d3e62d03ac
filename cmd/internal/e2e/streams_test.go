package e2e

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// What the origin has sent is with the client while the origin still holds the
// rest: event streams, and any other body without a length.
func TestStreamsArriveAtOnce(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{"text/event-stream", "application/x-ndjson"} {
		for _, scheme := range schemes {
			for _, h2 := range []bool{false, true} {
				if h2 && scheme == "http" {
					continue // there is no HTTP/2 outside a tunnel
				}
				t.Run(contentType+"/"+scheme+"/h2="+map[bool]string{true: "yes", false: "no"}[h2], func(t *testing.T) {
					release := make(chan struct{})
					o := newOrigin(t, "sse", "")
					o.handle("/events", heldPage(contentType, "data: one\n\n", "data: two\n\n", release))
					p := startProxy(t, outOfTheWay)
					resp, err := p.client(t, h2).Get(o.url(scheme, "/events"))
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
	if got := within(t, patience/3, "the first event arrives while the second is held", first); got != "data: one\n" {
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
	curl := needPeer(t, "curl")
	o := newOrigin(t, "ssecurl", "")
	p := startProxy(t, outOfTheWay)
	for _, scheme := range schemes {
		for _, version := range []string{"--http1.1", "--http2"} {
			release := make(chan struct{})
			o.handle("/events", heldPage("text/event-stream", "data: one\n\n", "data: two\n\n", release))
			cmd := exec.Command(curl, "-q", "-sSN", version, o.url(scheme, "/events"))
			cmd.Env = p.env(t)
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

// An event stream gives its place back: pages go on while one is open.
func TestEventStreamHoldsNoPlace(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	o := newOrigin(t, "places", "")
	o.handle("/events", heldPage("text/event-stream", "data: one\n\n", "", release))
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay.with(settings{"pace.max_concurrent": 1, "pace.max_wait": "5s"}))
	resp, err := p.client(t, false).Get(o.url("http", "/events"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := get(t, p.client(t, false), o.url("http", "/a")); got.Status != http.StatusOK {
		t.Errorf("a page beside an open event stream: %v", got)
	}
}

func TestTrailersAndInterimAnswers(t *testing.T) {
	t.Parallel()
	body := octets(5000)
	o := newOrigin(t, "trailers", "")
	o.handle("/trailers", trailerPage(body))
	o.handle("/hints", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Write(body)
	})
	p := startProxy(t, outOfTheWay)
	for _, scheme := range schemes {
		for _, h2 := range []bool{false, true} {
			client := p.client(t, h2)
			resp, err := client.Get(o.url(scheme, "/trailers"))
			if err != nil {
				t.Fatal(err)
			}
			if _, announced := resp.Trailer["X-Digest"]; !announced {
				t.Errorf("%s h2=%v: the trailer is not announced: %v", scheme, h2, resp.Trailer)
			}
			if got := read(t, resp); digest(got.Body) != digest(body) {
				t.Errorf("%s h2=%v: %v", scheme, h2, got)
			}
			if resp.Trailer.Get("X-Digest") != digest(body) || resp.Trailer.Get("X-Unannounced") != "yes" {
				t.Errorf("%s h2=%v: trailers %v", scheme, h2, resp.Trailer)
			}
			var hints []int
			trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				hints = append(hints, code)
				return nil
			}}
			req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), http.MethodGet, o.url(scheme, "/hints"), nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err = client.Do(req); err != nil {
				t.Fatal(err)
			}
			if read(t, resp); len(hints) != 1 || hints[0] != http.StatusEarlyHints {
				t.Errorf("%s h2=%v: interim answers %v, want one 103", scheme, h2, hints)
			}
		}
	}
}

// upgrade asks for another protocol and wants its octets back, also such as
// were sent before the answer could be read.
func upgrade(t *testing.T, w *wireClient, target, host string) {
	t.Helper()
	w.send(t, "GET "+target+" HTTP/1.1", "Host: "+host, "Connection: Upgrade", "Upgrade: websocket")
	if got := w.receive(t, http.MethodGet); got.Status != http.StatusSwitchingProtocols || !strings.EqualFold(got.Header.Get("Upgrade"), "websocket") {
		t.Fatalf("upgrade: %v %s", got, got.Body)
	}
	for _, message := range []string{"one", strings.Repeat("two", 10_000), "\x00\xff"} {
		io.WriteString(w, message)
		back := make([]byte, len(message))
		if _, err := io.ReadFull(w.r, back); err != nil || string(back) != message {
			t.Fatalf("sent %d octets, back came %v", len(message), err)
		}
	}
}

func TestUpgradedConnections(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "upgrade", "User-agent: *\nDisallow: /private\n")
	o.handle("/echo", echoPage(t))
	o.handle("/private/echo", echoPage(t))
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay.with(settings{"pace.max_concurrent": 1, "pace.max_wait": "5s"}))
	ways := map[string]func() (w *wireClient, base string, scheme string){
		"plain":   func() (*wireClient, string, string) { return p.dial(t), o.url("http", ""), "http" },
		"CONNECT": func() (*wireClient, string, string) { return p.connect(t, o.hostport("http")), "", "http" },
		"CONNECT, TLS": func() (*wireClient, string, string) {
			return p.connect(t, o.hostport("https")).secure(t, p, o.Name, "http/1.1"), "", "https"
		},
	}
	for name, open := range ways {
		t.Run(name, func(t *testing.T) {
			w, base, scheme := open()
			upgrade(t, w, base+"/echo", o.hostport(scheme))
			if got := get(t, p.client(t, false), o.url(scheme, "/a")); got.Status != http.StatusOK {
				t.Errorf("a page beside an upgraded connection: %v", got)
			}
			w.Close()
			other, base, scheme := open()
			other.send(t, "GET "+base+"/private/echo HTTP/1.1", "Host: "+o.hostport(scheme), "Connection: Upgrade", "Upgrade: websocket")
			wantOwn(t, other.receive(t, http.MethodGet), http.StatusForbidden, "http_request_denied")
			eventually(t, patience, "the upgraded connection's record", func() bool {
				for _, r := range readAudit(t, p.audit) {
					if r.Status == http.StatusSwitchingProtocols && r.URL == o.url(scheme, "/echo") {
						return true
					}
				}
				return false
			})
		})
	}
}

// The origin closes an upgraded connection: the client sees the end.
func TestUpgradedConnectionEnds(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "upgradeend", "")
	o.handle("/bye", func(w http.ResponseWriter, _ *http.Request) {
		serveUpgrade(t, w, "", func(rw *bufio.ReadWriter) {
			rw.WriteString("bye")
			rw.Flush()
		})
	})
	p := startProxy(t, outOfTheWay)
	for _, scheme := range schemes {
		w, base := p.dial(t), o.url("http", "")
		if scheme == "https" {
			w, base = p.connect(t, o.hostport("https")).secure(t, p, o.Name), ""
		}
		w.send(t, "GET "+base+"/bye HTTP/1.1", "Host: "+o.hostport(scheme), "Connection: Upgrade", "Upgrade: websocket")
		w.receive(t, http.MethodGet)
		w.SetDeadline(time.Now().Add(patience / 3))
		if rest, err := io.ReadAll(w.r); string(rest) != "bye" || err != nil {
			t.Errorf("%s: after 101 came %q, %v", scheme, rest, err)
		}
	}
}

// Node 24's own WebSocket, told of the proxy by the environment.
func TestNodeWebSocket(t *testing.T) {
	t.Parallel()
	node := needPeer(t, "node24")
	o := newOrigin(t, "websocket", "User-agent: *\nDisallow: /private\n")
	o.handle("/ws", webSocketPage(t))
	o.handle("/private/ws", webSocketPage(t))
	p := startProxy(t, outOfTheWay)
	for scheme, ws := range map[string]string{"http": "ws", "https": "wss"} {
		base := ws + "://" + o.hostport(scheme)
		out := runPeer(t, []string{node, "testdata/websocket.cjs", base + "/ws", base + "/private/ws"}, p.env(t)).want(t, 0)
		if want := "echo: hello\nrefused\n"; out.stdout != want {
			t.Errorf("%s: %q, want %q\n%s", scheme, out.stdout, want, out.stderr)
		}
		if n := len(o.pages(scheme)); n != 1 {
			t.Errorf("%s: %d handshakes arrived, want 1", scheme, n)
		}
	}
}
