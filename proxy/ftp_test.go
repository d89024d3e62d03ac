package proxy_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/proxy/egress/ftptest"
	"robotsproxy/robots/testkit"
)

// ftpTest is a request for an ftp URL and its expected result.
type ftpTest struct {
	name    string
	server  *ftptest.Server
	request string
	status  int
	error   string // error of Proxy-Status; "": a response of the origin
	body    string // "": any
	broken  bool
	retr    []string // RETR, LIST, MLSD and CWD commands at the server
	reason  policy.Reason
	rule    string
}

const ftpRobotsTxt = "User-agent: *\nDisallow: /private/\n"

func (c ftpTest) run(t *testing.T) {
	t.Parallel()
	if c.server.Files == nil {
		c.server.Files = map[string]string{"robots.txt": ftpRobotsTxt, "a.txt": "0123456789", "private/x": "secret", "pub/b": "b"}
	}
	testkit.Must(t, c.server.Start())
	t.Cleanup(c.server.Close)
	r := start(t, setup{})
	method, path, _ := strings.Cut(c.request, " ")
	resp := r.send(method + " ftp://" + c.server.Addr() + path + " HTTP/1.1\r\nHost: x\r\nUser-Agent: FooBot\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	var body []byte
	var err error
	if method != http.MethodHead {
		body, err = io.ReadAll(resp.Body)
	}
	if resp.StatusCode != c.status || c.body != "" && string(body) != c.body || errors.Is(err, io.ErrUnexpectedEOF) != c.broken {
		t.Errorf("%s, %q, %v", resp.Status, body, err)
	}
	own := resp.Header.Get("Proxy-Status")
	if strings.Contains(own, "error=") != (c.error != "") || !strings.Contains(own, "error="+c.error) && c.error != "" {
		t.Errorf("Proxy-Status: %s", own)
	}
	if c.status == http.StatusMethodNotAllowed && resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("Allow: %s", resp.Header.Get("Allow"))
	}
	rec := r.records.last(t, 1)
	if rec.Status != c.status || rec.Decision.Reason != c.reason || rec.Decision.Rule != c.rule || c.broken != (rec.Err != nil && c.status == 200) {
		t.Errorf("the record: status %d, %q, rule %q, %v", rec.Status, rec.Decision.Reason, rec.Decision.Rule, rec.Err)
	}
	if want := "ftp://" + c.server.Addr(); c.status != http.StatusBadRequest && rec.Request.Origin.String() != want {
		t.Errorf("the record's origin: %s", rec.Request.Origin)
	}
	c.server.Wait()
	if got := c.server.Lines("RETR", "LIST", "MLSD", "CWD"); !slices.Equal(got, c.retr) {
		t.Errorf("commands: %q, want %q", got, c.retr)
	}
	if c.status == http.StatusBadRequest && len(c.server.Lines()) > 0 {
		t.Errorf("commands: %q", c.server.Lines())
	}
}

// asked returns the commands for robots.txt, followed by lines.
func asked(lines ...string) []string { return append([]string{"RETR robots.txt"}, lines...) }

// cut breaks off every transfer except that of robots.txt.
func cut(data net.Conn, content string) string {
	if content == ftpRobotsTxt {
		io.WriteString(data, content)
		return "226 done"
	}
	io.WriteString(data, content[:4])
	return "426 broken off"
}

// badPort returns replies that name port 25 for the second data connection.
func badPort() func(verb, arg string) string {
	var asked atomic.Int32
	return func(verb, _ string) string {
		if verb == "EPSV" && asked.Add(1) > 1 {
			return "229 (|||25|)"
		}
		return ""
	}
}

// TestFTP checks that an ftp URL is judged, paced, fetched and recorded like any other.
func TestFTP(t *testing.T) {
	t.Parallel()
	for _, c := range []ftpTest{
		{"allowed", &ftptest.Server{}, "GET /a.txt", 200, "", "0123456789", false, asked("RETR a.txt"), policy.ReasonNoRule, ""},
		{"disallowed", &ftptest.Server{}, "GET /private/x", 403, "http_request_denied", "", false, asked(), policy.ReasonRule, "/private/"},
		{"disallowed, whatever the method", &ftptest.Server{}, "PUT /private/x", 403, "http_request_denied", "", false, asked(), policy.ReasonRule, "/private/"},
		{"a disallowed listing", &ftptest.Server{}, "GET /private;type=d", 403, "http_request_denied", "", false, asked(), policy.ReasonRule, "/private/"},
		{"a redirect to the directory", &ftptest.Server{}, "GET /private", 301, "", "", false, asked("RETR private", "CWD private"), policy.ReasonNoRule, ""},
		{"HEAD", &ftptest.Server{}, "HEAD /a.txt", 200, "", "", false, asked(), policy.ReasonNoRule, ""},
		{"RFC 9110 15.5.6: another method", &ftptest.Server{}, "PUT /a.txt", 405, "http_request_error", "", false, asked(), policy.ReasonMalformed, ""},
		{"an escaped leading slash", &ftptest.Server{}, "GET /%2Fprivate/x", 400, "http_request_error", "", false, nil, policy.ReasonMalformed, ""},
		{"two commands", &ftptest.Server{}, "GET /a%0D%0ADELE%20b", 400, "http_request_error", "", false, nil, policy.ReasonMalformed, ""},
		{"a directory", &ftptest.Server{}, "GET /pub/", 200, "", "", false, asked("CWD pub", "MLSD"), policy.ReasonNoRule, ""},
		{"no such file", &ftptest.Server{}, "GET /none", 404, "", "", false, asked("RETR none", "CWD none"), policy.ReasonNoRule, ""},
		{"cut", &ftptest.Server{Transfer: cut}, "GET /a.txt", 200, "", "0123", true, asked("RETR a.txt"), policy.ReasonNoRule, ""},
		{"cut, size unknown", &ftptest.Server{Transfer: cut, Reply: replyTo("SIZE", "500 what")}, "GET /a.txt", 200, "", "0123", true, asked("RETR a.txt"), policy.ReasonNoRule, ""},
		{"a forbidden data port", &ftptest.Server{Reply: badPort()}, "GET /a.txt", 403, "destination_ip_prohibited", "", false, asked(), policy.ReasonNoRule, ""},
	} {
		t.Run(c.name, c.run)
	}
}

func TestFTPRobotsTxt(t *testing.T) {
	t.Parallel()
	for _, c := range []ftpTest{
		{"robots.txt itself", &ftptest.Server{}, "GET /robots.txt", 200, "", ftpRobotsTxt, false, asked(), policy.ReasonRobotsTxt, ""},
		{"RFC 9309 2.3.1.3: no robots.txt", &ftptest.Server{Files: map[string]string{"a.txt": "0123456789"}}, "GET /a.txt", 200, "", "0123456789", false,
			asked("CWD robots.txt", "RETR a.txt"), policy.ReasonNoFile, ""},
		{"RFC 9309 2.3.1.4: half a robots.txt", &ftptest.Server{Transfer: func(net.Conn, string) string { return "451 broken off" }}, "GET /a.txt", 403, "http_request_denied", "", false, asked(), policy.ReasonUnreachable, ""},
		{"RFC 9309 2.3.1.4: no login", &ftptest.Server{Reply: replyTo("PASS", "530 full")}, "GET /a.txt", 403, "http_request_denied", "", false, nil, policy.ReasonUnreachable, ""},
		{"RFC 9309 2.3.1.4: too busy", &ftptest.Server{Greeting: "421 full"}, "GET /a.txt", 403, "http_request_denied", "", false, nil, policy.ReasonUnreachable, ""},
	} {
		t.Run(c.name, c.run)
	}
}

func replyTo(verb, reply string) func(string, string) string {
	return func(v, _ string) string {
		if v == verb {
			return reply
		}
		return ""
	}
}
