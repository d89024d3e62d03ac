package audit

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// rawOrigin starts an origin that answers a GET with the bytes for its path, and closes the connection. It returns
// its authority.
func rawOrigin(t *testing.T, answers map[string]string) string {
	t.Helper()
	name, addr := e2e.NewName("raw")
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				answer, ok := answers[r.URL.Path]
				if !ok {
					answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
				}
				io.WriteString(c, answer)
			}()
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	testkit.Must(t, err)
	return net.JoinHostPort(name, port)
}

// hostileAnswers are responses, by path, that try to make the archive unreadable.
func hostileAnswers() map[string]string {
	const ok = "HTTP/1.1 200 OK\r\n"
	var cookies, many strings.Builder
	for i := range 400 {
		fmt.Fprintf(&cookies, "Set-Cookie: name%d=c00kie; Path=/%d\r\n", i, i)
		fmt.Fprintf(&many, "X-%d: %d\r\n", i, i)
	}
	return map[string]string{
		"/reason":     "HTTP/1.1 200 O\rK\x00\x1b[2J\xff\r\nContent-Length: 2\r\n\r\nok",
		"/values":     ok + "A: \xff\xc3\xa4\tb\r\nContent-Length: 2\r\n\r\nok",
		"/control":    ok + "A: \x00\x01\x7f\r\nB: a\rWARC/1.1\r\nContent-Length: 2\r\n\r\nok",
		"/names":      ok + "A B: c\r\n: d\r\n\xff: e\r\nContent-Length: 2\r\n\r\nok",
		"/folded":     ok + "A: b\r\n WARC/1.1\r\n\tc\r\nContent-Length: 2\r\n\r\nok",
		"/cookies":    ok + cookies.String() + "Content-Length: 2\r\n\r\nok",
		"/many":       ok + many.String() + "Content-Length: 2\r\n\r\nok",
		"/cookie":     ok + "sEt-cOOkie: a=c00kie\r\nset-cookie2: a=c00kie\r\nContent-Length: 2\r\n\r\nok",
		"/bomb":       ok + "A: " + strings.Repeat("x", 1<<20) + "\r\nContent-Length: 2\r\n\r\nok",
		"/short":      ok + "Content-Length: 1000\r\n\r\nok",
		"/long":       ok + "Content-Length: 2\r\n\r\nok and more\r\nWARC/1.1\r\n\r\n",
		"/two":        ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
		"/both":       ok + "Content-Length: 100\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"/chunk":      ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\nffffffffffffffff\r\n",
		"/trailer":    ok + "Trailer: Set-Cookie, X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nSet-Cookie: a=c00kie\r\nX: y\r\n\r\n",
		"/coding":     ok + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
		"/zeros":      ok + "Content-Encoding: gzip\r\nConnection: close\r\n\r\n" + string(e2e.Zipped(make([]byte, 64<<20))),
		"/close":      ok + "X: y\r\n\r\nok",
		"/old":        "HTTP/1.0 200 OK\r\nX: y\r\n\r\nok",
		"/nothing":    "",
		"/status":     "HTTP/1.1 099 WARC\r\n\r\n",
		"/high":       "HTTP/1.1 999 \r\nContent-Length: 2\r\n\r\nok",
		"/early":      strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 5) + ok + "Content-Length: 2\r\n\r\nok",
		"/record":     ok + "Content-Length: 58\r\n\r\n\r\n\r\nWARC/1.1\r\nWARC-Type: response\r\nContent-Length: 0\r\n\r\n\r\n\r\n",
		"/member":     ok + "X: y\r\n\r\n" + string(e2e.Zipped([]byte("WARC/1.1\r\nContent-Length: 0\r\n\r\n\r\n\r\n"))),
		"/redirect":   "HTTP/1.1 302 Found\r\nLocation: http://u:s3cret@x/\xff\r\nContent-Length: 0\r\n\r\n",
		"/none":       "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
		"/unmodified": "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
		"/switch":     "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nraw",
	}
}

// TestArchiveHostileParties: whatever an origin answers and a client sends, warcio reads the files to their end, no digest
// is wrong, and no credential is in them.
func TestArchiveHostileParties(t *testing.T) {
	t.Parallel()
	e2e.NeedWarcio(t)
	for _, form := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			answers := hostileAnswers()
			raw := rawOrigin(t, answers)
			p, dir := startProxy(t, e2e.Settings{"archive.compress": form, "archive.dedup": false, "audit.clients": "drop"})
			for path := range answers {
				for _, extra := range []string{"X: y", "Connection: Upgrade\r\nUpgrade: websocket"} {
					w := p.Dial(t)
					w.Send(t, "GET http://"+raw+path+" HTTP/1.1", "Host: "+raw, extra, "cOOkie: a=c00kie", "AUTHORIZATION: Basic s3cret", "Proxy-Authorization: Basic s3cret", "Referer: http://u:s3cret@x/")
					w.SetDeadline(time.Now().Add(testkit.Patience))
					readAnswer(w)
					w.Close()
				}
			}
			hostileClients(t, p)
			if !p.Healthy(t) {
				t.Error("/healthz says that the archive cannot be written")
			}
			p.End(t)
			byPath := map[string]e2e.WARCRecord{}
			for _, r := range readArchive(t, dir) {
				if _, path, ok := strings.Cut(r.URL, raw); ok && r.Type == "response" {
					byPath[path] = r
				}
			}
			ok, none := e2e.Digest([]byte("ok")), e2e.Digest(nil)
			for sum, paths := range map[string]string{
				ok + " ":           "/reason /values /folded /cookies /many /cookie /long /both /trailer /coding /close /old /high /early",
				ok + " disconnect": "/short /chunk",
				none + " ":         "/redirect /none /unmodified /switch",
			} {
				for path := range strings.FieldsSeq(paths) {
					if r := byPath[path]; r.SHA256+" "+r.Truncated != sum {
						t.Errorf("%s: %+v", path, r)
					}
				}
			}
			wantNoSecrets(t, dir)
		})
	}
}

// readAnswer reads a response to its end: the final one, or the one that switches protocols.
func readAnswer(w *e2e.RawClient) {
	for {
		resp, err := http.ReadResponse(w.R, nil)
		if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
			return
		}
		io.Copy(io.Discard, resp.Body)
		if resp.StatusCode >= http.StatusOK {
			return
		}
	}
}

// hostileClients send requests that try to make the archive unreadable.
func hostileClients(t *testing.T, p *e2e.Proxy) {
	t.Helper()
	o := e2e.NewOrigin(t, "clients", "")
	o.Handle("/upload", e2e.UploadPage)
	o.Handle("/early", e2e.TextPage("text/plain", "early"))
	host := o.Hostport("http")
	for _, request := range []string{
		"GET http://HOST/%00%0d%0aWARC-Type:%20x HTTP/1.1\r\nHost: HOST\r\n\r\n",
		"GET http://HOST/\xff\x80\xc3\xa4?\xff\x80 HTTP/1.1\r\nHost: HOST\r\n\r\n",
		"GET http://HOST/" + strings.Repeat("\xff", 60<<10) + " HTTP/1.1\r\nHost: HOST\r\n\r\n",
		"GET http://HOST/?" + strings.Repeat("x", 60<<10) + " HTTP/1.1\r\nHost: HOST\r\n\r\n",
		"GET http://HOST/a b HTTP/1.1\r\nHost: HOST\r\n\r\n",
		"GET http://HOST/ HTTP/1.1\r\nHost: HOST\r\nA: \xff\x80\r\n\r\n",
		"POST http://HOST/upload HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nTrailer: Cookie\r\n\r\n3\r\nabc\r\n0\r\nCookie: a=c00kie\r\n\r\n",
		"POST http://HOST/upload HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1000\r\n\r\nabc",                      // never ends
		"POST http://HOST/early HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\nabc",        // never ends
		"POST http://HOST/early HTTP/1.1\r\nHost: HOST\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",     // never begins
		"PUT http://HOST/upload HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc\r\n", // twice
	} {
		w := p.Dial(t)
		io.WriteString(w, strings.ReplaceAll(request, "HOST", host))
		w.SetReadDeadline(time.Now().Add(200 * time.Millisecond)) // some get no answer
		http.ReadResponse(w.R, nil)
		w.Close()
	}
}

// wantNoSecrets checks that no file of an archive, which is not compressed, has a secret.
func wantNoSecrets(t *testing.T, dir string) {
	t.Helper()
	for _, file := range completeFiles(t, dir) {
		if filepath.Ext(file) != ".warc" {
			continue
		}
		text, err := os.ReadFile(file)
		testkit.Must(t, err)
		for _, secret := range []string{"s3cret", "c00kie", "client: "} {
			if at := strings.Index(string(text), secret); at >= 0 {
				t.Errorf("%s: %q", file, text[max(0, at-200):at+len(secret)])
			}
		}
	}
}
