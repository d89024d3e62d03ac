package egress

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"robotsproxy/proxy/egress/ftptest"
)

// startFTP starts an FTP server with two files.
func startFTP(t testing.TB) *ftptest.Server {
	t.Helper()
	s := &ftptest.Server{Files: map[string]string{"robots.txt": "User-agent: *\nDisallow: /private\n", "a.txt": "0123456789"}}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestFTPIsGuarded(t *testing.T) {
	s := startFTP(t)
	if _, _, err := get(t, newClient(t, Options{}), "ftp://"+s.Addr()+"/a.txt"); !errors.Is(err, ErrForbiddenAddr) {
		t.Errorf("a forbidden address: %v", err)
	}
	if lines := s.Lines(); len(lines) > 0 {
		t.Errorf("arrived: %q", lines)
	}
}

// With an upstream proxy, both connections are tunnels through it, to the name in the
// URL.
func TestFTPThroughAParent(t *testing.T) {
	eachParent(t, func(t *testing.T, p *fakeParent, ca *authority) {
		server := startFTP(t)
		_, port, err := net.SplitHostPort(server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		d := behind(t, p, ca)
		resp, body, err := get(t, d, "ftp://origin.test:"+port+"/a.txt")
		if err != nil || resp.StatusCode != http.StatusOK || body != "0123456789" {
			t.Fatalf("%v %q %v", resp, body, err)
		}
		asked := p.Requests()
		if len(asked) != 2 {
			t.Fatalf("the parent was asked for %v", asked)
		}
		for _, a := range asked {
			if !strings.HasPrefix(a.Target, "origin.test:") {
				t.Errorf("the parent was asked for %v", a)
			}
		}
	})
}
