package e2e

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
)

var schemes = []string{"http", "https"}

// bigBlock repeated bigBlocks times is 64 MiB.
var bigBlock = octets(1 << 20)

const bigBlocks = 64

func bigDigest() string {
	sum := sha256.New()
	for range bigBlocks {
		sum.Write(bigBlock)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// bodyOrigin has a page for each kind of body; the map has their digests as on the wire.
func bodyOrigin(t testing.TB) (*origin, map[string]string) {
	o := newOrigin(t, "bodies", "")
	small, middle, gz := octets(1<<10), octets(64<<10), zipped(bytes.Repeat([]byte("again and again "), 4096))
	o.handle("/1k", sizedPage(small))
	o.handle("/64k", sizedPage(middle))
	o.handle("/64m", repeatedPage(bigBlock, bigBlocks))
	o.handle("/chunked", chunkedPage(middle, 1000))
	o.handle("/gzip", zippedPage(gz))
	o.handle("/empty", sizedPage(nil))
	return o, map[string]string{
		"/1k": digest(small), "/64k": digest(middle), "/64m": bigDigest(), "/chunked": digest(middle), "/gzip": digest(gz),
		"/empty": digest(nil),
	}
}

func TestBodiesAreIdentical(t *testing.T) {
	t.Parallel()
	o, want := bodyOrigin(t)
	p := startProxy(t, outOfTheWay)
	for name, argv := range map[string]func(testing.TB) []string{
		"curl-h1":  needCommand("curl", "-q", "-sS", "--http1.1", "-H", "Accept-Encoding: gzip"),
		"curl-h2":  needCommand("curl", "-q", "-sS", "--http2", "-H", "Accept-Encoding: gzip"),
		"requests": needPython("requests", "testdata/raw_body.py", "requests"),
		"urllib":   needPython("urllib.request", "testdata/raw_body.py", "urllib"),
	} {
		t.Run(name, func(t *testing.T) {
			args := argv(t)
			for _, scheme := range schemes {
				for path, sum := range want {
					if path == "/64m" && (name == "curl-h2" && scheme == "http" || name == "urllib") {
						continue // the same way as another row's
					}
					if got := streamDigest(t, args, p.env(t), o.url(scheme, path)); got != sum {
						t.Errorf("%s %s: digest %s, want %s", scheme, path, got, sum)
					}
				}
			}
		})
	}
	whole := func(r record) bool { return r.Bytes == bigBlocks<<20 }
	if r := recordsOf(readAudit(t, p.audit), o.url("https", "/64m")); !slices.ContainsFunc(r, whole) {
		t.Errorf("no record of 64 MiB: %+v", r)
	}
}

// streamDigest runs a client that writes the body to its output, and sums it up.
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

// What a client says of compression is its own: none asked for, none comes.
func TestEncodingIsTheClients(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "encoding", "")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay)
	for _, h2 := range []bool{false, true} {
		for _, scheme := range schemes {
			get(t, p.client(t, h2), o.url(scheme, "/a"))
			get(t, p.client(t, h2), o.url(scheme, "/a"), "Accept-Encoding", "br;q=1.0, zstd")
			hits := o.pages(scheme)
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
	o.handle("/forbidden", textPage("text/plain", "x"))
	o.handle("/robots.txt", textPage("text/plain", "User-agent: *\nDisallow: /forbidden\n"))
	middle := octets(64 << 10)
	p := startProxy(t, outOfTheWay)
	for _, h2 := range []bool{false, true} {
		client := p.client(t, h2)
		for _, scheme := range schemes {
			head := do(t, client, http.MethodHead, o.url(scheme, "/64k"), nil)
			if head.Status != http.StatusOK || head.Header.Get("Content-Length") != strconv.Itoa(64<<10) || len(head.Body) != 0 {
				t.Errorf("%s h2=%v HEAD: %v", scheme, h2, head)
			}
			refused := do(t, client, http.MethodHead, o.url(scheme, "/forbidden"), nil)
			if wantOwn(t, refused, http.StatusForbidden, "http_request_denied"); len(refused.Body) != 0 {
				t.Errorf("%s h2=%v: a refused HEAD has a body", scheme, h2)
			}
			part := get(t, client, o.url(scheme, "/64k"), "Range", "bytes=100-199")
			if part.Status != http.StatusPartialContent || !bytes.Equal(part.Body, middle[100:200]) ||
				part.Header.Get("Content-Range") != "bytes 100-199/65536" {
				t.Errorf("%s h2=%v range: %v", scheme, h2, part)
			}
			beyond := get(t, client, o.url(scheme, "/64k"), "Range", "bytes=70000-")
			if beyond.Status != http.StatusRequestedRangeNotSatisfiable {
				t.Errorf("%s h2=%v range beyond the end: %v", scheme, h2, beyond)
			}
			if whole := get(t, client, o.url(scheme, "/64k")); digest(whole.Body) != want["/64k"] {
				t.Errorf("%s h2=%v: after all that the body is %v", scheme, h2, whole)
			}
		}
	}
}

// curl sends Expect: 100-continue above 1 MiB; a refused upload is not read.
func TestUploads(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	o := newOrigin(t, "uploads", "User-agent: *\nDisallow: /private\n")
	o.handle("/up", uploadPage)
	o.handle("/private/up", uploadPage)
	p := startProxy(t, outOfTheWay)
	body := octets(3 << 20)
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	want := strconv.Itoa(len(body)) + " " + digest(body)
	for _, scheme := range schemes {
		for _, version := range []string{"--http1.1", "--http2"} {
			for _, how := range [][]string{{"-T", file}, {"--data-binary", "@" + file}, {"-T", "-"}} {
				args := append([]string{"-q", "-sS", version}, how...)
				cmd := exec.Command(curl, append(args, o.url(scheme, "/up"))...)
				cmd.Env, cmd.Stdin = p.env(t), bytes.NewReader(body)
				if out := finish(t, cmd).want(t, 0); out.stdout != want {
					t.Errorf("%s %s %v: origin got %q, want %q", scheme, version, how, out.stdout, want)
				}
				cmd = exec.Command(curl, append(args, "-w", "%{http_code}", "-o", "/dev/null", o.url(scheme, "/private/up"))...)
				cmd.Env, cmd.Stdin = p.env(t), bytes.NewReader(body)
				if out := finish(t, cmd); !strings.HasSuffix(out.stdout, "403") {
					t.Errorf("%s %s %v: a refused upload: %q, %s", scheme, version, how, out.stdout, out.stderr)
				}
			}
		}
		for _, h := range o.pages(scheme) {
			if h.Path == "/private/up" {
				t.Errorf("%s %s arrived", h.Method, h.Path)
			}
		}
	}
}

// A client that waits for 100 gets it before it has sent anything; one that is
// refused gets the refusal instead.
func TestExpectContinueIsAnsweredFirst(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "expect", "User-agent: *\nDisallow: /private\n")
	o.handle("/up", uploadPage)
	p := startProxy(t, outOfTheWay)
	for _, scheme := range schemes {
		head := func(path string) []string {
			target := o.url("http", path)
			if scheme == "https" {
				target = path
			}
			return []string{"PUT " + target + " HTTP/1.1", "Host: " + o.hostport(scheme), "Expect: 100-continue", "Content-Length: 5"}
		}
		open := func() *wireClient {
			if scheme == "https" {
				return p.connect(t, o.hostport("https")).secure(t, p, o.Name)
			}
			return p.dial(t)
		}
		w := open()
		w.send(t, head("/up")...)
		if line, err := w.r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
			t.Fatalf("%s: before the body came %q, %v", scheme, line, err)
		}
		w.r.ReadString('\n')
		io.WriteString(w, "hello")
		if got := w.receive(t, http.MethodPut); string(got.Body) != "5 "+digest([]byte("hello")) {
			t.Errorf("%s: %v %s", scheme, got, got.Body)
		}
		w = open()
		w.send(t, head("/private/up")...)
		wantOwn(t, w.receive(t, http.MethodPut), http.StatusForbidden, "http_request_denied")
	}
}
