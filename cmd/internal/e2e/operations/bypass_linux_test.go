package operations

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// A heldOrigin serves several ports of another machine. It answers each page after a while.
type heldOrigin struct {
	held time.Duration

	mu                   sync.Mutex
	direct, throughProxy []string // authority and path of the requests that came without the proxy, and through it
}

func newHeldOrigin(t *testing.T, held time.Duration, addrs ...string) *heldOrigin {
	o := &heldOrigin{held: held}
	server := &http.Server{Handler: o}
	t.Cleanup(func() { server.Close() })
	for _, addr := range addrs {
		go server.Serve(listen(t, host("origin"), addr))
	}
	return o
}

func (o *heldOrigin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/robots.txt" {
		fmt.Fprint(w, e2e.Forbidding)
		return
	}
	o.mu.Lock()
	to := &o.direct
	if strings.Contains(r.Header.Get("Via"), "robotsproxy") {
		to = &o.throughProxy
	}
	*to = append(*to, r.Host+r.URL.Path)
	o.mu.Unlock()
	select {
	case <-time.After(o.held):
	case <-r.Context().Done():
	}
}

// pages returns the requests so far, sorted.
func (o *heldOrigin) pages() (direct, throughProxy []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(slices.Values(o.direct)), slices.Sorted(slices.Values(o.throughProxy))
}

// ignoring is a client that ignores the variables. It connects a UDP socket to a second address.
const ignoring = `import http.client, socket, sys
for address in sys.argv[2:]:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.connect((address, 443))
c = http.client.HTTPConnection(sys.argv[1])
c.request("GET", "/no")
sys.exit(c.getresponse().status != 200)
`

// TestRunSeesWhatGoesPast: the summary names the programs that connect to another machine without the proxy, however
// they were started, and not the client beside them that uses the proxy.
func TestRunSeesWhatGoesPast(t *testing.T) {
	t.Parallel()
	python := e2e.NeedPython("http.client")(t)[0]
	curl := e2e.NeedPeer(t, "curl")
	if !inside(t) {
		return
	}
	sh(t, originHost)
	direct := []string{"10.77.2.2:8001", "10.77.2.2:8002", "10.77.2.2:8003", "[fd77:2::2]:8004"}
	o := newHeldOrigin(t, 4*time.Second, append(direct, "10.77.2.2:80")...)
	h := e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"egress.allow_private": []string{"10.77.2.0/24"}}))
	file := filepath.Join(h.Dir, "ignoring.py")
	e2e.WriteFile(t, file, ignoring)
	const past = "robotsproxy: went past the proxy: %s to %s (at least 1 connection)"

	t.Run("beside a client that uses the proxy", func(t *testing.T) {
		const script = `
"$1" "$2" 10.77.2.2:8001 10.77.2.2 &
env -i "$1" "$2" 10.77.2.2:8002 &
(setsid "$1" "$2" 10.77.2.2:8003 & )
"$1" "$2" '[fd77:2::2]:8004' &
"$3" -q -sS http://10.77.2.2/page http://10.77.2.2/no
wait
exit 3`
		out := e2e.Command(t, h.RunArgs("sh", "-c", script, "sh", python, file, curl)...).Want(t, 3)
		var want []string
		for _, addr := range direct {
			want = append(want, fmt.Sprintf(past, filepath.Base(python), addr))
		}
		want = append(want, fmt.Sprintf(past, filepath.Base(python), "10.77.2.2:443 over UDP"))
		wantPast(t, out, want)
		if !strings.HasPrefix(out.Stderr, "robotsproxy: 2 requests: 1 allowed, 1 disallowed") {
			t.Errorf("the summary begins\n%s", out.Stderr)
		}
		ignored, heeded := o.pages()
		var arrived []string
		for _, addr := range direct {
			arrived = append(arrived, addr+"/no")
		}
		if !slices.Equal(ignored, arrived) || !slices.Equal(heeded, []string{"10.77.2.2/page"}) {
			t.Errorf("at the origin arrived %q, and through the proxy %q", ignored, heeded)
		}
	})
	t.Run("alone, with -q", func(t *testing.T) {
		out := e2e.Command(t, "run", "-c", h.Config, "-q", "--", python, file, "10.77.2.2:8001").Want(t, 0)
		wantPast(t, out, []string{fmt.Sprintf(past, filepath.Base(python), "10.77.2.2:8001")})
		if !strings.HasPrefix(out.Stderr, "robotsproxy: went past the proxy: ") {
			t.Errorf("standard error begins\n%s", out.Stderr)
		}
	})
}

// wantPast checks what a run says that went past the proxy, and that its last line says how to prevent that.
func wantPast(t *testing.T, out e2e.Outcome, want []string) {
	t.Helper()
	var got []string
	last := ""
	for line := range strings.Lines(out.Stderr) {
		if last = strings.TrimSuffix(line, "\n"); strings.HasPrefix(last, "robotsproxy: went past") {
			got = append(got, last)
		}
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("%q, want %q\n%s", got, want, out.Stderr)
	}
	if says := strings.Contains(last, "Use robotsproxy run --confine -- COMMAND"); says != (len(want) > 0) {
		t.Errorf("the last line is %q", last)
	}
}

// TestNothingGoesPast: a client that uses the proxy gives no alarm, however many connections the proxy makes for it, nor
// does another proxy that the command starts.
func TestNothingGoesPast(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	if !inside(t) {
		return
	}
	sh(t, originHost)
	o := newHeldOrigin(t, time.Second, "10.77.2.2:80")
	h := e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"egress.allow_private": []string{"10.77.2.0/24"}, "pace.adaptive": false}))
	const script = `
"$1" run -c "$2" -- "$3" -q -sS http://10.77.2.2/page &
"$3" -q -s --parallel --parallel-immediate --parallel-max 100 'http://10.77.2.2/page?[1-300]'
wait`
	out := e2e.Command(t, h.RunArgs("sh", "-c", script, "sh", e2e.Binary(t), h.Config, curl)...).Want(t, 0)
	wantPast(t, out, nil)
	if direct, throughProxy := o.pages(); len(direct) != 0 || len(throughProxy) != 301 {
		t.Errorf("%d requests came without the proxy, and %d through it", len(direct), len(throughProxy))
	}
	for _, want := range []string{"robotsproxy: 300 requests: 300 allowed", "robotsproxy: 1 request: 1 allowed"} {
		if !strings.Contains(out.Stderr, want) {
			t.Errorf("no %q:\n%s", want, out.Stderr)
		}
	}
}
