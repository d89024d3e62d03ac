package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const text = "User-agent: *\nDisallow: /private\n"

// newClient makes a client with a transport of its own that is closed when the test ends.
func newClient(t testing.TB, timeout time.Duration) *Client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	c, err := New(Options{Sender: Unpaced(tr), Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func originOf(t testing.TB, address string) robots.Origin {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	o, err := robots.ParseOrigin(u.Scheme, u.Host)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// outline is what the tables compare of a Result.
type outline struct {
	Status, Redirects     int
	Body                  string
	Lost, Connected, Fail bool
	MaxAge                time.Duration
	Dead                  bool
}

func outlineOf(t *testing.T, r *Result) outline {
	t.Helper()
	if r.Fetched.IsZero() {
		t.Error("Fetched is not set")
	}
	if r.Err != nil && !strings.HasPrefix(r.Err.Error(), "fetch http") {
		t.Errorf("Err does not name its operation: %v", r.Err)
	}
	want := ""
	if r.Body != nil {
		want = digest(string(r.Body))
	}
	if r.SHA256 != want {
		t.Errorf("SHA256 = %q, want %q", r.SHA256, want)
	}
	return outline{r.Status, r.Redirects, string(r.Body), r.TooManyRedirects, r.Connected, r.Err != nil, r.MaxAge, r.DeadRedirect}
}

func TestStatus(t *testing.T) {
	for _, tc := range []struct {
		status int
		body   string
	}{
		{200, text}, {200, ""}, {201, text}, {204, ""}, {206, text},
		{401, ""}, {403, ""}, {404, ""}, {410, ""}, {418, ""}, {429, ""},
		{500, ""}, {502, ""}, {503, ""}, {599, ""},
	} {
		t.Run(fmt.Sprintf("%d with %d bytes", tc.status, len(tc.body)), func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				if tc.status >= 300 {
					_, _ = io.WriteString(w, "an error page nobody keeps")
				}
				_, _ = io.WriteString(w, tc.body)
			})
			a := newClient(t, 0).Fetch(t.Context(), Request{Origin: originOf(t, s.URL), UserAgent: "FooBot/1.0"})
			want := outline{Status: tc.status, Body: tc.body, Connected: true, MaxAge: -1}
			if diff := cmp.Diff(want, outlineOf(t, a)); diff != "" {
				t.Errorf("answer (-want +got):\n%s%v", diff, a.Err)
			}
			if a.URL != s.URL+"/robots.txt" {
				t.Errorf("URL = %s", a.URL)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	long := strings.Repeat("x", MaxUserAgent+1)
	for _, tc := range []struct {
		name, give string
		want       []string
	}{
		{"as given", "FooBot/2.1 (+https://foo.example)", []string{"FooBot/2.1 (+https://foo.example)"}},
		{"none", "", nil},
		{"cut, lest the origin refuse it for its length", long, []string{long[:MaxUserAgent]}},
		{"no header can hold it", "Foo\r\nHost: evil", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := make(chan *http.Request, 1)
			s := serve(t, func(_ http.ResponseWriter, r *http.Request) { got <- r })
			if a := newClient(t, 0).Fetch(t.Context(), Request{Origin: originOf(t, s.URL), UserAgent: tc.give}); a.Err != nil {
				t.Fatal(a.Err)
			}
			r := <-got
			if diff := cmp.Diff(tc.want, r.Header.Values("User-Agent")); diff != "" {
				t.Errorf("User-Agent (-want +got):\n%s", diff)
			}
			if r.Method != http.MethodGet || r.RequestURI != "/robots.txt" {
				t.Errorf("%s %s", r.Method, r.RequestURI)
			}
			if r.Header.Get("Accept-Encoding") != "gzip" || !strings.HasPrefix(r.Header.Get("Accept"), "text/plain") {
				t.Errorf("header %v", r.Header)
			}
		})
	}
}

// TestRedirects: /N redirects N times, then responds with a file.
func TestRedirects(t *testing.T) {
	var other *httptest.Server
	h := func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		var left, status int
		_, _ = fmt.Sscan(q.Get("left"), &left)
		_, _ = fmt.Sscan(q.Get("status"), &status)
		switch {
		case left > 0:
			next := fmt.Sprintf("/next?left=%d&status=%d", left-1, status)
			if left%2 == 0 {
				next = other.URL + next
			}
			w.Header().Set("Location", next)
			w.WriteHeader(status)
		default:
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = io.WriteString(w, text)
		}
	}
	other = serve(t, h)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, tc := range []struct {
			hops int
			want outline
		}{
			{1, outline{Status: 200, Redirects: 1, Body: text, Connected: true, MaxAge: time.Minute}},
			{5, outline{Status: 200, Redirects: 5, Body: text, Connected: true, MaxAge: time.Minute}},
			{6, outline{Status: status, Redirects: 5, Lost: true, Connected: true, MaxAge: -1}},
		} {
			t.Run(fmt.Sprintf("RFC 9309 2.3.1.2: %d, %d hops", status, tc.hops), func(t *testing.T) {
				s := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/robots.txt" {
						r.URL.RawQuery = fmt.Sprintf("left=%d&status=%d", tc.hops, status)
					}
					h(w, r)
				})
				a := newClient(t, 0).Fetch(t.Context(), Request{Origin: originOf(t, s.URL), UserAgent: ""})
				if diff := cmp.Diff(tc.want, outlineOf(t, a)); diff != "" {
					t.Errorf("answer (-want +got):\n%s%v", diff, a.Err)
				}
			})
		}
	}
}

func TestRedirectTargets(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
	t.Cleanup(secure.Close)
	plain := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	answered := outline{Status: 200, Redirects: 1, Body: text, Connected: true, MaxAge: -1}
	dead := func(status int) outline {
		return outline{Status: status, Dead: true, Fail: true, Connected: true, MaxAge: -1}
	}
	for _, tc := range []struct {
		name, location string
		want           outline
		says           string
	}{
		{"another host", plain.URL + "/x", answered, ""},
		{"another scheme", secure.URL + "/robots.txt", answered, ""},
		{"scheme-relative", strings.TrimPrefix(plain.URL, "http:") + "/x", answered, ""},
		{"with user and fragment", strings.Replace(plain.URL, "//", "//u:p@", 1) + "/x#y", answered, ""},
		{"to itself", "/robots.txt", outline{Status: 302, Redirects: 5, Lost: true, Connected: true, MaxAge: -1}, ""},
		{"without Location", "", dead(302), "status 302 has no Location"},
		{"no URL", "http://[::1", dead(302), "the Location \"http://[::1\" is no URL with a host"},
		{"no host", "http:///x", dead(302), "is no URL with a host"},
		{"no HTTP", "ftp://example.test/robots.txt", dead(302), "the Location has the scheme \"ftp\""},
		{"a file", "file:///robots.txt", dead(302), "the Location has the scheme \"file\""},
		{"a script", "javascript:alert(1)", dead(302), "the Location has the scheme \"javascript\""},
		{"a choice", "/300", dead(300), "status 300 has no URL to follow"},
		{"not modified", "/304", dead(304), "status 304 has no URL to follow"},
		{"a proxy", "/305", dead(305), "status 305 has no URL to follow"},
		{"refused there", "http://" + testkit.DeadEnd(t, "127.0.0.1") + "/robots.txt", outline{Redirects: 1, Connected: true, Fail: true, MaxAge: -1}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status := http.StatusFound
			if tc.want.Dead {
				status = tc.want.Status
			}
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if tc.location != "" {
					w.Header().Set("Location", tc.location)
				}
				w.WriteHeader(status)
			})
			client := &Client{Options{Sender: Unpaced(secure.Client().Transport), Timeout: time.Minute, MaxURL: 8 << 10}}
			t.Cleanup(secure.Client().CloseIdleConnections)
			a := client.Fetch(t.Context(), Request{Origin: originOf(t, s.URL), UserAgent: ""})
			if diff := cmp.Diff(tc.want, outlineOf(t, a)); diff != "" {
				t.Errorf("answer (-want +got):\n%s%v", diff, a.Err)
			}
			if tc.says != "" && !strings.HasSuffix(a.Err.Error(), tc.says) {
				t.Errorf("error %v, want %s", a.Err, tc.says)
			}
			if strings.ContainsAny(a.URL, "@#") {
				t.Errorf("URL keeps what is not asked for: %s", a.URL)
			}
		})
	}
}

// tripper is a function as a transport.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestForbiddenRedirectTarget(t *testing.T) {
	errForbidden := errors.New("forbidden address")
	c, err := New(Options{Sender: Unpaced(tripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host == "169.254.169.254" {
			return nil, errForbidden
		}
		h := http.Header{"Location": {"http://169.254.169.254/"}}
		return &http.Response{StatusCode: 302, Header: h, Body: http.NoBody}, nil
	}))})
	if err != nil {
		t.Fatal(err)
	}
	a := c.Fetch(t.Context(), Request{Origin: robots.Origin{Scheme: "http", Host: "a.test", Port: 80}, UserAgent: ""})
	if !errors.Is(a.Err, errForbidden) || !a.Connected {
		t.Errorf("Err %v, Connected %v", a.Err, a.Connected)
	}
	a = c.Fetch(t.Context(), Request{Origin: robots.Origin{Scheme: "http", Host: "169.254.169.254", Port: 80}, UserAgent: ""})
	if !errors.Is(a.Err, errForbidden) || a.Connected {
		t.Errorf("first hop: Err %v, Connected %v", a.Err, a.Connected)
	}
}

// TestLongRedirectIsForgotten: a transport keeps the scheme and the host of an idle connection,
// and must not keep the whole URL of a redirect with them.
func TestLongRedirectIsForgotten(t *testing.T) {
	const n, long = 30, 200 << 10
	var kept []*url.URL
	c, err := New(Options{MaxURL: 2 * long, Sender: Unpaced(tripper(func(r *http.Request) (*http.Response, error) {
		kept = append(kept, &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host})
		if len(r.URL.Path) > long {
			return &http.Response{StatusCode: 404, Body: http.NoBody}, nil
		}
		h := http.Header{"Location": {"http://b.test/" + strings.Repeat("x", long)}}
		return &http.Response{StatusCode: 302, Header: h, Body: http.NoBody}, nil
	}))})
	if err != nil {
		t.Fatal(err)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range n {
		if a := c.Fetch(t.Context(), Request{Origin: robots.Origin{Scheme: "http", Host: "a.test", Port: 80}}); a.Status != 404 {
			t.Fatalf("status %d, %v", a.Status, a.Err)
		}
	}
	if after := heap(); after > before+n*long/10 {
		t.Errorf("%d redirects keep %d bytes", n, after-before)
	}
	runtime.KeepAlive(kept)
}

// TestOwnFailure: Result.OwnFailure is what Options.IsOwnFailure returns for the error of any
// hop.
func TestOwnFailure(t *testing.T) {
	errWay := errors.New("no way out")
	c, err := New(Options{
		Sender: Unpaced(tripper(func(r *http.Request) (*http.Response, error) {
			switch r.URL.Host {
			case "moved.test":
				return &http.Response{StatusCode: 302, Header: http.Header{"Location": {"http://a.test/"}}, Body: http.NoBody}, nil
			case "not-allowed.test":
				return &http.Response{StatusCode: 302, Header: http.Header{"Location": {"http://d.test/"}}, Body: http.NoBody}, nil
			case "a.test":
				return nil, fmt.Errorf("dial: %w", errWay)
			case "c.test":
				return &http.Response{StatusCode: 200, Body: io.NopCloser(iotest.ErrReader(errWay))}, nil
			}
			return nil, errors.New("refused")
		})),
		IsOwnFailure: func(err error) bool { return errors.Is(err, errWay) },
		Allowed: func(_ context.Context, _ Request, to robots.Origin, _ string) error {
			if to.Host == "d.test" {
				return errWay
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{"a.test": true, "moved.test": true, "not-allowed.test": true, "b.test": false, "c.test": true} {
		a := c.Fetch(t.Context(), Request{Origin: robots.Origin{Scheme: "http", Host: host, Port: 80}, UserAgent: ""})
		if a.Err == nil || a.OwnFailure != want {
			t.Errorf("%s: Ours = %t, %v", host, a.OwnFailure, a.Err)
		}
	}
}

func TestTimeoutCoversBody(t *testing.T) {
	for name, first := range map[string]string{"no answer": "", "half a body": "User-agent: *\n"} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if first != "" {
					_, _ = io.WriteString(w, first)
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			})
			a := newClient(t, 100*time.Millisecond).Fetch(t.Context(), Request{Origin: originOf(t, s.URL), UserAgent: ""})
			if !errors.Is(a.Err, context.DeadlineExceeded) || !a.Connected || a.Body != nil {
				t.Errorf("Err %v, Connected %v, Body %q", a.Err, a.Connected, a.Body)
			}
		})
	}
}

func TestCallerLeaves(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	if a := newClient(t, 0).Fetch(ctx, Request{Origin: originOf(t, s.URL), UserAgent: ""}); !errors.Is(a.Err, context.Canceled) {
		t.Errorf("Err = %v", a.Err)
	}
}

func TestNeverNil(t *testing.T) {
	if a := new(Client).Fetch(t.Context(), Request{Origin: robots.Origin{}, UserAgent: ""}); a == nil || a.Err == nil || a.Connected {
		t.Errorf("zero Client: %+v", a)
	}
	if a := newClient(t, 0).Fetch(t.Context(), Request{Origin: robots.Origin{}, UserAgent: ""}); a == nil || a.Err == nil || a.Connected {
		t.Errorf("zero Origin: %+v", a)
	}
	for _, o := range []Options{{}, {Sender: Unpaced(tripper(nil)), Timeout: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("New(%+v) is no error", o)
		}
	}
}

func TestSizeLimit(t *testing.T) {
	big := bytes.Repeat([]byte("Disallow: /0123456789abcdef/\n"), 30000)[:600<<10]
	for _, size := range []int{robots.MaxBytes - 1, robots.MaxBytes, robots.MaxBytes + 1, len(big)} {
		t.Run(fmt.Sprintf("RFC 9309 2.5: %d bytes", size), func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(big[:size]) })
			a := newClient(t, 0).Fetch(t.Context(), Request{Origin: originOf(t, s.URL), UserAgent: ""})
			want := big[:min(size, robots.MaxBytes)]
			if a.Err != nil || !bytes.Equal(a.Body, want) || a.SHA256 != digest(string(want)) {
				t.Errorf("Err %v, %d bytes, want %d", a.Err, len(a.Body), len(want))
			}
		})
	}
}

// TestConnectionIsKept: the next request to the origin uses the same connection.
func TestConnectionIsKept(t *testing.T) {
	for _, status := range []int{200, 404, 503} {
		var seen []string
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			seen = append(seen, r.RemoteAddr)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		})
		c := newClient(t, 0)
		c.Fetch(t.Context(), Request{Origin: originOf(t, s.URL), UserAgent: ""})
		c.Fetch(t.Context(), Request{Origin: originOf(t, s.URL), UserAgent: ""})
		if len(seen) != 2 || seen[0] != seen[1] {
			t.Errorf("%d: connections %v", status, seen)
		}
	}
}

func ExampleClient_Fetch() {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "User-agent: *\nDisallow: /private\n")
	}))
	defer site.Close()
	tr := &http.Transport{DisableCompression: true}
	defer tr.CloseIdleConnections()
	client, err := New(Options{Sender: Unpaced(tr)})
	if err != nil {
		panic(err)
	}
	u, _ := url.Parse(site.URL)
	origin, err := robots.ParseOrigin(u.Scheme, u.Host)
	if err != nil {
		panic(err)
	}
	answer := client.Fetch(context.Background(), Request{Origin: origin, UserAgent: "FooBot/2.1 (+https://foo.example)"})
	fmt.Printf("%d, %d bytes, %v\n", answer.Status, len(answer.Body), answer.Err)
	// Output: 200, 33 bytes, <nil>
}
