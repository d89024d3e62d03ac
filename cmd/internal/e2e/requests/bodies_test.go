package requests

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// bigBlock repeated bigBlocks times is 24 MiB.
var bigBlock = e2e.RandomBytes(1 << 20)

const bigBlocks = 24

func bigDigest() string {
	sum := sha256.New()
	for range bigBlocks {
		sum.Write(bigBlock)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// bodyOrigin has a page for each kind of body. The map has the digests of the bodies as
// sent.
func bodyOrigin(t testing.TB) (*e2e.Origin, map[string]string) {
	o := e2e.NewOrigin(t, "bodies", "")
	small, middle, gz := e2e.RandomBytes(1<<10), e2e.RandomBytes(64<<10), e2e.Zipped(bytes.Repeat([]byte("again and again "), 4096))
	o.Handle("/1k", e2e.SizedPage(small))
	o.Handle("/64k", e2e.SizedPage(middle))
	o.Handle("/big", e2e.RepeatedPage(bigBlock, bigBlocks))
	o.Handle("/chunked", e2e.ChunkedPage(middle, 1000))
	o.Handle("/gzip", e2e.ZippedPage(gz))
	o.Handle("/empty", e2e.SizedPage(nil))
	return o, map[string]string{
		"/1k": e2e.Digest(small), "/64k": e2e.Digest(middle), "/big": bigDigest(), "/chunked": e2e.Digest(middle), "/gzip": e2e.Digest(gz),
		"/empty": e2e.Digest(nil),
	}
}

func TestBodiesAreIdentical(t *testing.T) {
	testkit.Long(t, "real peers")
	t.Parallel()
	o, want := bodyOrigin(t)
	p := e2e.StartProxy(t, e2e.Unpaced)
	t.Run("peers", func(t *testing.T) {
		for name, argv := range map[string]func(testing.TB) []string{
			"curl-h1":  e2e.NeedCommand("curl", "-q", "-sS", "--http1.1", "-H", "Accept-Encoding: gzip"),
			"curl-h2":  e2e.NeedCommand("curl", "-q", "-sS", "--http2", "-H", "Accept-Encoding: gzip"),
			"requests": e2e.NeedPython("requests", e2e.Script("raw_body.py"), "requests"),
			"urllib":   e2e.NeedPython("urllib.request", e2e.Script("raw_body.py"), "urllib"),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				args := argv(t)
				for _, scheme := range e2e.Schemes {
					for path, sum := range want {
						if path == "/big" && (name == "curl-h2" && scheme == "http" || name == "urllib") {
							continue // same as another row
						}
						if got := streamDigest(t, args, p.Env(t), o.URL(scheme, path)); got != sum {
							t.Errorf("%s %s: digest %s, want %s", scheme, path, got, sum)
						}
					}
				}
			})
		}
	})
	whole := func(r e2e.Record) bool { return r.Bytes == bigBlocks<<20 }
	if r := e2e.RecordsOf(e2e.ReadAudit(t, p.Audit), o.URL("https", "/big")); !slices.ContainsFunc(r, whole) {
		t.Errorf("no record of the whole body: %+v", r)
	}
}

// streamDigest runs a client that writes the body to its output, and returns the digest.
func streamDigest(t testing.TB, argv, env []string, url string) string {
	t.Helper()
	cmd := exec.Command(argv[0], append(argv[1:len(argv):len(argv)], url)...)
	var stderr bytes.Buffer
	sum := sha256.New()
	cmd.Env, cmd.Stdout, cmd.Stderr = env, sum, &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("%s %s: %v\n%s", argv[0], url, err, &stderr)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// The client decides about compression: if it asks for none, it gets none.
func TestEncodingIsTheClients(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "encoding", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, h2 := range []bool{false, true} {
		for _, scheme := range e2e.Schemes {
			e2e.Get(t, p.Client(t, h2), o.URL(scheme, "/a"))
			e2e.Get(t, p.Client(t, h2), o.URL(scheme, "/a"), "Accept-Encoding", "br;q=1.0, zstd")
			hits := o.Pages(scheme)
			without, with := hits[len(hits)-2], hits[len(hits)-1]
			if got, there := without.Header["Accept-Encoding"]; there {
				t.Errorf("%s h2=%v: Accept-Encoding %q was added", scheme, h2, got)
			}
			if got := with.Header.Get("Accept-Encoding"); got != "br;q=1.0, zstd" {
				t.Errorf("%s h2=%v: Accept-Encoding became %q", scheme, h2, got)
			}
		}
	}
}

func TestHeadAndRanges(t *testing.T) {
	t.Parallel()
	o, want := bodyOrigin(t)
	o.Handle("/forbidden", e2e.TextPage("text/plain", "x"))
	o.Handle("/robots.txt", e2e.TextPage("text/plain", "User-agent: *\nDisallow: /forbidden\n"))
	middle := e2e.RandomBytes(64 << 10)
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, h2 := range []bool{false, true} {
		client := p.Client(t, h2)
		for _, scheme := range e2e.Schemes {
			head := e2e.Do(t, client, http.MethodHead, o.URL(scheme, "/64k"), nil)
			if head.Status != http.StatusOK || head.Header.Get("Content-Length") != strconv.Itoa(64<<10) || len(head.Body) != 0 {
				t.Errorf("%s h2=%v HEAD: %v", scheme, h2, head)
			}
			refused := e2e.Do(t, client, http.MethodHead, o.URL(scheme, "/forbidden"), nil)
			if e2e.WantOwn(t, refused, http.StatusForbidden, "http_request_denied"); len(refused.Body) != 0 {
				t.Errorf("%s h2=%v: a refused HEAD has a body", scheme, h2)
			}
			part := e2e.Get(t, client, o.URL(scheme, "/64k"), "Range", "bytes=100-199")
			if part.Status != http.StatusPartialContent || !bytes.Equal(part.Body, middle[100:200]) ||
				part.Header.Get("Content-Range") != "bytes 100-199/65536" {
				t.Errorf("%s h2=%v range: %v", scheme, h2, part)
			}
			beyond := e2e.Get(t, client, o.URL(scheme, "/64k"), "Range", "bytes=70000-")
			if beyond.Status != http.StatusRequestedRangeNotSatisfiable {
				t.Errorf("%s h2=%v range beyond the end: %v", scheme, h2, beyond)
			}
			if whole := e2e.Get(t, client, o.URL(scheme, "/64k")); e2e.Digest(whole.Body) != want["/64k"] {
				t.Errorf("%s h2=%v: after all that the body is %v", scheme, h2, whole)
			}
		}
	}
}

// curl sends Expect: 100-continue above 1 MiB. The body of a refused upload is not read.
func TestUploads(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "uploads", "User-agent: *\nDisallow: /private\n")
	o.Handle("/up", e2e.UploadPage)
	o.Handle("/private/up", e2e.UploadPage)
	p := e2e.StartProxy(t, e2e.Unpaced)
	body := e2e.RandomBytes(3 << 20)
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	want := strconv.Itoa(len(body)) + " " + e2e.Digest(body)
	for _, scheme := range e2e.Schemes {
		for _, version := range []string{"--http1.1", "--http2"} {
			for _, how := range [][]string{{"-T", file}, {"--data-binary", "@" + file}, {"-T", "-"}} {
				args := append([]string{"-q", "-sS", version}, how...)
				cmd := exec.Command(curl, append(args, o.URL(scheme, "/up"))...)
				cmd.Env, cmd.Stdin = p.Env(t), bytes.NewReader(body)
				if out := e2e.Finish(t, cmd).Want(t, 0); out.Stdout != want {
					t.Errorf("%s %s %v: origin got %q, want %q", scheme, version, how, out.Stdout, want)
				}
				cmd = exec.Command(curl, append(args, "-w", "%{http_code}", "-o", "/dev/null", o.URL(scheme, "/private/up"))...)
				cmd.Env, cmd.Stdin = p.Env(t), bytes.NewReader(body)
				if out := e2e.Finish(t, cmd); !strings.HasSuffix(out.Stdout, "403") {
					t.Errorf("%s %s %v: a refused upload: %q, %s", scheme, version, how, out.Stdout, out.Stderr)
				}
			}
		}
		for _, h := range o.Pages(scheme) {
			if h.Path == "/private/up" {
				t.Errorf("%s %s arrived", h.Method, h.Path)
			}
		}
	}
}

// A client that waits for 100 gets it before it sends the body. If the request is
// refused, it gets the refusal instead.
func TestExpectContinueIsAnsweredFirst(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "expect", "User-agent: *\nDisallow: /private\n")
	o.Handle("/up", e2e.UploadPage)
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		head := func(path string) []string {
			target := o.URL("http", path)
			if scheme == "https" {
				target = path
			}
			return []string{"PUT " + target + " HTTP/1.1", "Host: " + o.Hostport(scheme), "Expect: 100-continue", "Content-Length: 5"}
		}
		open := func() *e2e.RawClient {
			if scheme == "https" {
				return p.Connect(t, o.Hostport("https")).Secure(t, p, o.Name)
			}
			return p.Dial(t)
		}
		w := open()
		w.Send(t, head("/up")...)
		if line, err := w.R.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
			t.Fatalf("%s: before the body came %q, %v", scheme, line, err)
		}
		w.R.ReadString('\n')
		io.WriteString(w, "hello")
		if got := w.Receive(t, http.MethodPut); string(got.Body) != "5 "+e2e.Digest([]byte("hello")) {
			t.Errorf("%s: %v %s", scheme, got, got.Body)
		}
		w = open()
		w.Send(t, head("/private/up")...)
		e2e.WantOwn(t, w.Receive(t, http.MethodPut), http.StatusForbidden, "http_request_denied")
	}
}
