package ftp

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"robotsproxy/proxy/egress/ftptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts s. If s has no files, it gets some.
func start(t testing.TB, s *ftptest.Server) *ftptest.Server {
	t.Helper()
	if s.Files == nil {
		s.Files = map[string]string{
			"robots.txt": "User-agent: *\nDisallow: /private\n", "a.txt": "0123456789", "pub/b c.bin": "binary", "pub/deep/x": "x",
			"pub/\u00fc": "umlaut", "pub/p.html": "<p>", "a?b": "question", "one": "1", "empty": "",
		}
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

var errForbidden = errors.New("forbidden")

// options returns Options whose Dial refuses well-known ports.
func options() Options {
	o := Options{Timeout: 5 * time.Second, Sent: func() {}, Count: func(int64) error { return nil }}
	o.Dial = func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		if port < 1024 {
			return nil, errForbidden
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	}
	return o
}

func visit(t testing.TB, method, address string, header http.Header) (*http.Response, string, error) {
	t.Helper()
	return visitBy(t, options(), method, address, header)
}

func visitBy(t testing.TB, o Options, method, address string, header http.Header) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	resp, err := RoundTrip(r, o)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// instead replaces the replies to some commands.
func instead(replies map[string]string) func(string, string) string {
	return func(verb, _ string) string { return replies[verb] }
}

// then replaces the reply that ends a successful transfer.
func then(last string) func(net.Conn, string) string {
	return func(data net.Conn, content string) string {
		io.WriteString(data, content)
		return last
	}
}

var loginLines = []string{"USER anonymous", "PASS anonymous@", "FEAT", "TYPE I", "OPTS UTF8 ON"}

// A visitTest is one request, with the commands that the server gets and the response.
type visitTest struct {
	name   string
	server *ftptest.Server
	method string // "": GET
	path   string
	send   http.Header
	status int
	header map[string]string // fields that must be present
	length int64
	body   string   // "": any
	lines  []string // commands after the login, without QUIT
}

func (c visitTest) run(t *testing.T) {
	s := start(t, c.server)
	if c.method == "" {
		c.method = http.MethodGet
	}
	resp, body, err := visit(t, c.method, "ftp://"+s.Addr()+c.path, c.send)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != c.status || c.body != "" && body != c.body || resp.ContentLength != c.length && c.length != 0 {
		t.Errorf("%s, %d bytes announced: %q", resp.Status, resp.ContentLength, body)
	}
	if c.method == http.MethodHead && body != "" {
		t.Errorf("HEAD has a body: %q", body)
	}
	for name, want := range c.header {
		if name == "Location" {
			want = "ftp://" + s.Addr() + want
		}
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if c.lines == nil {
		return
	}
	s.Wait()
	want := append(append(loginLines[:len(loginLines):len(loginLines)], c.lines...), "QUIT")
	if c.server.Features != nil {
		want = append([]string{}, append(append(loginLines[:4:4], c.lines...), "QUIT")...)
	}
	if diff := cmp.Diff(want, s.Lines()); diff != "" {
		t.Error(diff)
	}
}

var (
	date   = ftptest.Modified.Format(http.TimeFormat)
	noSize = instead(map[string]string{"SIZE": "500 what", "MDTM": "500 what"})
)

func bytesFrom(spec string) http.Header { return http.Header{"Range": {spec}} }

func TestRoundTrip(t *testing.T) {
	for _, c := range []visitTest{
		{"a file", &ftptest.Server{}, "", "/a.txt", nil, 200,
			map[string]string{"Content-Length": "10", "Last-Modified": date, "Accept-Ranges": "bytes"}, 10, "0123456789",
			[]string{"SIZE a.txt", "MDTM a.txt", "EPSV", "RETR a.txt"}},
		{"RFC 1738 3.2.2: from the login directory on, decoded", &ftptest.Server{}, "", "/pub/b%20c.bin", nil, 200,
			map[string]string{"Content-Type": "application/octet-stream"}, 6, "binary",
			[]string{"SIZE pub/b c.bin", "MDTM pub/b c.bin", "EPSV", "RETR pub/b c.bin"}},
		{"the type of what is known by its name", &ftptest.Server{}, "", "/pub/p.html", nil, 200, map[string]string{"Content-Type": "text/html"}, 3, "<p>", nil},
		{"bytes over 0x7F", &ftptest.Server{}, "", "/pub/%C3%BC", nil, 200, nil, 6, "umlaut", nil},
		{"RFC 1738 3.2.2: the type code is no part of the name", &ftptest.Server{}, "", "/a.txt;type=a", nil, 200, nil, 10, "0123456789",
			[]string{"SIZE a.txt", "MDTM a.txt", "EPSV", "RETR a.txt"}},
		{"a question mark is part of the name", &ftptest.Server{}, "", "/a?b", nil, 200, nil, 8, "question", nil},
		{"an empty file", &ftptest.Server{}, "", "/empty", nil, 200, map[string]string{"Content-Length": "0"}, 0, "", nil},
		{"a file of one byte", &ftptest.Server{}, "", "/one", nil, 200, nil, 1, "1", nil},
		{"credentials are not used", &ftptest.Server{}, "", "/one", http.Header{"Authorization": {"Basic dTpw"}}, 200, nil, 1, "1", nil},
		{"HEAD transfers nothing", &ftptest.Server{}, "HEAD", "/a.txt", nil, 200,
			map[string]string{"Content-Length": "10", "Last-Modified": date}, 10, "", []string{"SIZE a.txt", "MDTM a.txt"}},
		{"no size, no date", &ftptest.Server{Reply: noSize}, "", "/a.txt", bytesFrom("bytes=3-"), 200,
			map[string]string{"Content-Length": "", "Last-Modified": "", "Accept-Ranges": ""}, -1, "0123456789", nil},
		{"RFC 959 5.4: 250 ends a transfer too", &ftptest.Server{Transfer: then("250 fine")}, "", "/a.txt", nil, 200, nil, 10, "0123456789", nil},
	} {
		t.Run(c.name, c.run)
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []visitTest{
		{"RFC 9110 14.1.2: the rest of a file", &ftptest.Server{}, "", "/a.txt", bytesFrom("bytes=3-"), 206,
			map[string]string{"Content-Range": "bytes 3-9/10", "Content-Length": "7"}, 7, "3456789",
			[]string{"SIZE a.txt", "MDTM a.txt", "EPSV", "REST 3", "RETR a.txt"}},
		{"all of it", &ftptest.Server{}, "", "/a.txt", bytesFrom("bytes=0-"), 206, map[string]string{"Content-Range": "bytes 0-9/10"}, 10, "0123456789", nil},
		{"RFC 9110 15.5.17: beyond the end", &ftptest.Server{}, "", "/a.txt", bytesFrom("bytes=10-"), 416,
			map[string]string{"Content-Range": "bytes */10"}, 42, "", []string{"SIZE a.txt", "MDTM a.txt"}},
		{"RFC 9110 14.2: other ranges may be ignored", &ftptest.Server{}, "", "/a.txt", bytesFrom("bytes=3-5"), 200, nil, 10, "0123456789", nil},
		{"the last bytes", &ftptest.Server{}, "", "/a.txt", bytesFrom("bytes=-3"), 200, nil, 10, "0123456789", nil},
		{"another unit", &ftptest.Server{}, "", "/a.txt", bytesFrom("lines=3-"), 200, nil, 10, "0123456789", nil},
		{"RFC 9110 13.1.5: If-Range", &ftptest.Server{}, "", "/a.txt", http.Header{"Range": {"bytes=3-"}, "If-Range": {date}}, 200, nil, 10, "0123456789", nil},
		{"REST is not known", &ftptest.Server{Reply: instead(map[string]string{"REST": "502 what"})}, "", "/a.txt", bytesFrom("bytes=3-"), 200,
			map[string]string{"Content-Range": ""}, 10, "0123456789", []string{"SIZE a.txt", "MDTM a.txt", "EPSV", "REST 3", "EPSV", "RETR a.txt"}},
		{"REST is known, and RETR refused", &ftptest.Server{Reply: instead(map[string]string{"RETR": "553 no"})}, "", "/a.txt", bytesFrom("bytes=3-"), 502,
			nil, 39, "", []string{"SIZE a.txt", "MDTM a.txt", "EPSV", "REST 3", "RETR a.txt"}},
	} {
		t.Run(c.name, c.run)
	}
}

func TestPassive(t *testing.T) {
	for _, c := range []visitTest{
		{"RFC 2428: EPSV is not known", &ftptest.Server{Reply: instead(map[string]string{"EPSV": "500 what"})}, "", "/one", nil, 200, nil, 1, "1",
			[]string{"SIZE one", "MDTM one", "EPSV", "PASV", "RETR one"}},
		{"RFC 2577 3: PASV names another host", &ftptest.Server{PassiveIP: "169.254.169.254", Reply: instead(map[string]string{"EPSV": "500 what"})},
			"", "/one", nil, 200, nil, 1, "1", nil},
	} {
		t.Run(c.name, c.run)
	}
}

func TestDirectories(t *testing.T) {
	for _, c := range []visitTest{
		{"a directory by MLSD", &ftptest.Server{}, "", "/pub/", nil, 200, map[string]string{"Content-Type": "text/html; charset=utf-8"}, 0, "",
			[]string{"CWD pub", "EPSV", "MLSD"}},
		{"a directory by LIST", &ftptest.Server{Features: []string{}}, "", "/pub/", nil, 200, nil, 0, "", []string{"CWD pub", "EPSV", "LIST"}},
		{"the login directory", &ftptest.Server{}, "", "/", nil, 200, nil, 0, "", []string{"EPSV", "MLSD"}},
		{"RFC 1738 3.2.2: type=d", &ftptest.Server{}, "", "/pub/deep;type=d", nil, 200, nil, 0, "", []string{"CWD pub/deep", "EPSV", "MLSD"}},
		{"a directory called like an option", &ftptest.Server{Files: map[string]string{"-R/x": ""}}, "", "/-R/", nil, 200, nil, 0, "", []string{"CWD -R", "EPSV", "MLSD"}},
		{"HEAD of a directory", &ftptest.Server{}, "HEAD", "/pub/", nil, 200, nil, -1, "", []string{"CWD pub"}},
		{"an empty directory, as some servers have it", &ftptest.Server{Reply: instead(map[string]string{"MLSD": "450 nothing"})}, "", "/pub/", nil, 200, nil, 0, "", nil},
		{"a directory's address ends in a slash", &ftptest.Server{}, "", "/pub/deep", nil, 301, map[string]string{"Location": "/pub/deep/"}, 50, "", nil},
		{"and is one", &ftptest.Server{Files: map[string]string{"a?b;type=d/x": ""}}, "HEAD", "/a%3Fb%3Btype=d", nil, 301, map[string]string{"Location": "/a%3Fb%3Btype=d/"}, 50, "", nil},
	} {
		t.Run(c.name, c.run)
	}
}

func TestReplyCodes(t *testing.T) {
	for _, c := range []visitTest{
		{"550: no such file", &ftptest.Server{}, "", "/none", nil, 404, map[string]string{"Content-Type": "text/plain; charset=utf-8"}, 39, "The FTP server answered with code 550.\n",
			[]string{"SIZE none", "MDTM none", "EPSV", "RETR none", "CWD none"}},
		{"550: no such file, HEAD", &ftptest.Server{}, "HEAD", "/none", nil, 404, nil, 39, "", []string{"SIZE none", "MDTM none", "CWD none"}},
		{"550: no such directory", &ftptest.Server{}, "", "/none/", nil, 404, nil, 39, "", []string{"CWD none"}},
		{"530 to PASS", &ftptest.Server{Reply: instead(map[string]string{"PASS": "530 no"})}, "", "/one", nil, 403, nil, 39, "", nil},
		{"530 to USER", &ftptest.Server{Reply: instead(map[string]string{"USER": "530 no"})}, "", "/one", nil, 403, nil, 39, "", nil},
		{"421 to USER", &ftptest.Server{Reply: instead(map[string]string{"USER": "421 no"})}, "", "/one", nil, 503, nil, 39, "", nil},
		{"421 as a greeting", &ftptest.Server{Greeting: "421 full"}, "", "/one", nil, 503, nil, 39, "", nil},
		{"421 and gone", &ftptest.Server{Reply: instead(map[string]string{"SIZE": "421 enough", "MDTM": ftptest.Hangup})}, "", "/one", nil, 503, nil, 39, "", nil},
		{"450 to RETR", &ftptest.Server{Reply: instead(map[string]string{"RETR": "450 busy"})}, "", "/one", nil, 503, nil, 39, "", nil},
		{"553 to RETR", &ftptest.Server{Reply: instead(map[string]string{"RETR": "553 <script>"})}, "", "/one", nil, 502, nil, 39, "The FTP server answered with code 553.\n", nil},
		{"neither SIZE nor MDTM for HEAD", &ftptest.Server{Reply: noSize}, "HEAD", "/one", nil, 502, nil, 39, "", nil},
		{"550 for robots.txt", &ftptest.Server{Files: map[string]string{"x": ""}}, "", "/robots.txt", nil, 404, nil, 39, "", nil},
		{"421 for robots.txt", &ftptest.Server{Greeting: "421 full"}, "", "/robots.txt", nil, 503, nil, 39, "", nil},
	} {
		t.Run(c.name, c.run)
	}
}

// A brokenTest is a fault of the server and its result.
type brokenTest struct {
	name   string
	server *ftptest.Server
	path   string
	body   string // the part of the body before the fault
	target error  // nil: any
}

// word is a text of the server that no error may contain.
const word = "s3cret-word"

func (c brokenTest) run(t *testing.T) {
	s := start(t, c.server)
	_, body, err := visit(t, http.MethodGet, "ftp://"+s.Addr()+c.path, nil)
	if err == nil || !errors.Is(err, c.target) {
		t.Fatalf("%v; want %v", err, c.target)
	}
	if body != c.body {
		t.Errorf("came: %q, want %q", body, c.body)
	}
	if strings.Contains(err.Error(), word) || len(err.Error()) > 300 {
		t.Errorf("the error has the server's words: %v", err)
	}
}

// half transfers the first half and ends with a reply.
func half(last string) func(net.Conn, string) string {
	return func(data net.Conn, content string) string {
		io.WriteString(data, content[:len(content)/2])
		return last
	}
}

// A fault of the server is an error or breaks off the body. It is never a short success,
// and no error contains the server's text.
func TestBroken(t *testing.T) {
	noSize := map[string]string{"SIZE": "500 what"}
	noEPSV := func(pasv string) func(string, string) string {
		return instead(map[string]string{"EPSV": "500 what", "PASV": pasv})
	}
	for _, c := range []brokenTest{
		{"fewer bytes than announced", &ftptest.Server{Transfer: half("226 done")}, "/a.txt", "01234", errTransfer},
		{"fewer bytes, and the server says so", &ftptest.Server{Transfer: half("426 " + word)}, "/a.txt", "01234", errTransfer},
		{"fewer bytes, size unknown", &ftptest.Server{Transfer: half("426 " + word), Reply: instead(noSize)}, "/a.txt", "01234", errTransfer},
		{"the server hangs up, size unknown", &ftptest.Server{Transfer: half(ftptest.Hangup), Reply: instead(noSize)}, "/a.txt", "01234", errTransfer},
		{"all bytes, and 451 at the end", &ftptest.Server{Transfer: then("451 " + word)}, "/a.txt", "012345678", errTransfer},
		{"all bytes, and no word at the end", &ftptest.Server{Transfer: then(ftptest.Hangup)}, "/a.txt", "012345678", errTransfer},
		{"one octet, and 451", &ftptest.Server{Transfer: then("451 " + word)}, "/one", "", errTransfer},
		{"no octet, and 451", &ftptest.Server{Transfer: then("451 " + word)}, "/empty", "", errTransfer},
		{"the only byte is missing", &ftptest.Server{Transfer: half("226 done")}, "/one", "", errTransfer},
		{"more bytes than announced", &ftptest.Server{Transfer: func(data net.Conn, content string) string {
			io.WriteString(data, content+content)
			return "226 done"
		}}, "/a.txt", "012345678", errTransfer},
		{"a reply without an end", &ftptest.Server{Greeting: "220 " + strings.Repeat("x", 1<<20)}, "/a.txt", "", errReplyLimit},
		{"a reply of lines without an end", &ftptest.Server{Greeting: "220-x\r\n" + strings.Repeat("220-x\r\n", 1<<17) + "220 x"}, "/a.txt", "", errReplyLimit},
		{"no FTP", &ftptest.Server{Greeting: "SSH 2.0 " + word}, "/a.txt", "", errNotFTP},
		{"hangs up at once", &ftptest.Server{Greeting: ftptest.Hangup}, "/a.txt", "", io.ErrUnexpectedEOF},
		{"hangs up at RETR", &ftptest.Server{Reply: instead(map[string]string{"RETR": ftptest.Hangup})}, "/a.txt", "", io.ErrUnexpectedEOF},
		{"PASV, brackets the wrong way round", &ftptest.Server{Reply: noEPSV("227 )" + word + "(")}, "/a.txt", "", errNotFTP},
		{"PASV, for a directory", &ftptest.Server{Reply: noEPSV("227 )" + word + "(")}, "/pub/", "", errNotFTP},
		{"PASV, no numbers", &ftptest.Server{Reply: noEPSV("227 (a,b,c,d," + word + ",f)")}, "/a.txt", "", errNotFTP},
		{"PASV, a forbidden port", &ftptest.Server{Reply: noEPSV("227 (127,0,0,1,0,25)")}, "/a.txt", "", errForbidden},
		{"EPSV, a forbidden port", &ftptest.Server{Reply: instead(map[string]string{"EPSV": "229 (|||25|)"})}, "/a.txt", "", errForbidden},
		{"EPSV, port 0", &ftptest.Server{Reply: instead(map[string]string{"EPSV": "229 (|||0|)"})}, "/a.txt", "", errForbidden},
		{"EPSV, no port", &ftptest.Server{Reply: instead(map[string]string{"EPSV": "229 (|||65537|)"})}, "/a.txt", "", errNotFTP},
	} {
		t.Run(c.name, c.run)
	}
}

// TestBrokenRobotsTxt: no fault means that there is no robots.txt (RFC 9309 2.3.1.3).
func TestBrokenRobotsTxt(t *testing.T) {
	for _, c := range []brokenTest{
		{"530 to PASS", &ftptest.Server{Reply: instead(map[string]string{"PASS": "530 " + word})}, "/robots.txt", "", errLogin},
		{"550 to PASS", &ftptest.Server{Reply: instead(map[string]string{"PASS": "550 " + word})}, "/robots.txt", "", errLogin},
		{"550 to a data connection", &ftptest.Server{Reply: instead(map[string]string{"EPSV": "550 " + word, "PASV": "550 " + word})}, "/robots.txt", "", errLogin},
		{"530 to USER", &ftptest.Server{Reply: instead(map[string]string{"USER": "530 " + word})}, "/robots.txt", "", errLogin},
		{"half a robots.txt", &ftptest.Server{Transfer: half("226 done")}, "/robots.txt", "User-agent: *\nDi", errTransfer},
	} {
		t.Run(c.name, c.run)
	}
}

// If FTP cannot express a request, no connection is made.
func TestNothingElseIsSent(t *testing.T) {
	s := start(t, &ftptest.Server{})
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"} {
		if _, _, err := visit(t, method, "ftp://"+s.Addr()+"/a.txt", nil); !errors.Is(err, ErrMethod) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if _, _, err := visit(t, "GET", "ftp://"+s.Addr()+"/a%0D%0ADELE%20a.txt", nil); !errors.Is(err, ErrPath) {
		t.Errorf("two commands: %v", err)
	}
	if lines := s.Lines(); len(lines) > 0 {
		t.Errorf("arrived: %q", lines)
	}
}
