package requests

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/proxy/egress/ftptest"
)

// FTP requests through the proxy are judged and paced like others.
func TestFTPPeersAreMadePolite(t *testing.T) {
	const delay = time.Second // the server asks for a delay of three seconds
	for _, who := range e2e.Peers {
		if !slices.Contains([]string{"curl-h1", "wget", "urllib"}, who.Name) {
			continue // the other peers do not support FTP
		}
		t.Run(who.Name, func(t *testing.T) {
			t.Parallel()
			argv := who.Need(t)
			s := e2e.StartFTP(t, &ftptest.Server{})
			p := e2e.StartProxy(t, e2e.Settings{"robots.max_crawl_delay": delay.String()})
			base := "ftp://" + s.Addr()
			urls := []string{base + "/a.txt", base + "/private/x", base + "/pub/b%20c.bin", base + "/none"}
			got := who.Fetch(t, argv, p.Env(t), urls)
			for i, name := range []string{"a.txt", "", "pub/b c.bin"} {
				if want := s.Files[name]; name != "" && (got[i].Status != http.StatusOK || string(got[i].Body) != want) {
					t.Errorf("%s: %v", urls[i], got[i])
				}
			}
			e2e.WantOwn(t, got[1], http.StatusForbidden, "http_request_denied")
			e2e.WantNames(t, got[1], "/private/", 2, "*", base+"/robots.txt")
			r := e2e.AwaitRecord(t, p.Audit, urls[1])
			e2e.WantBlocked(t, r, "rule", http.StatusForbidden)
			if got[3].Status != http.StatusNotFound || got[3].Header.Get("Proxy-Status") != "" {
				t.Errorf("no such file: %v", got[3])
			}
			r = e2e.AwaitRecord(t, p.Audit, urls[2])
			if r.Decision != "allow" || r.Reason != "no-rule" || r.Bytes != 300_000 || r.RobotsURL != base+"/robots.txt" || r.CrawlDelay != delay.Seconds() {
				t.Errorf("record of an allowed file: %+v", r)
			}
			s.Wait()
			if lines := s.Lines("RETR"); !slices.Equal(lines, []string{"RETR robots.txt", "RETR a.txt", "RETR pub/b c.bin", "RETR none"}) {
				t.Fatalf("arrived: %q", lines)
			}
			files := s.Commands("RETR")[1:]
			// The server records a command when it reads it, which may be late for the
			// first one.
			if took := files[len(files)-1].At.Sub(files[0].At); took < delay*time.Duration(len(files)-1)*3/5 {
				t.Errorf("%d files were asked for in %v", len(files), took)
			}
		})
	}
}

// A disallowed request costs the server only the fetch of robots.txt.
func TestFTPDisallowed(t *testing.T) {
	t.Parallel()
	argv := e2e.NeedCommand("curl", "-q", "-sS")(t)
	s := e2e.StartFTP(t, &ftptest.Server{})
	p := e2e.StartProxy(t, e2e.Settings{})
	out := e2e.RunPeer(t, append(argv, "-x", p.Listen, "ftp://"+s.Addr()+"/private/x"), e2e.CleanEnv()).Want(t, 0)
	if !strings.Contains(out.Stdout, "Disallow: /private/ (line 2)") {
		t.Error(out.Stdout)
	}
	s.Wait()
	if lines := s.Lines("SIZE", "RETR", "CWD", "LIST", "MLSD"); !slices.Equal(lines, []string{"SIZE robots.txt", "RETR robots.txt"}) {
		t.Errorf("arrived: %q", lines)
	}
	out = e2e.Command(t, "check", "-c", p.Config, "ftp://"+s.Addr()+"/private/x").Want(t, 1)
	if !strings.Contains(out.Stdout, "disallowed ftp://") || !strings.Contains(out.Stdout, "outcome:        status 200: rules") {
		t.Error(out.Stdout)
	}
}

func TestFTPByCurl(t *testing.T) {
	t.Parallel()
	argv := e2e.NeedCommand("curl", "-q", "-sS")(t)
	s := e2e.StartFTP(t, &ftptest.Server{})
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"robots.max_crawl_delay": "1ms"}))
	base := "ftp://" + s.Addr()
	started := filepath.Join(t.TempDir(), "a.txt")
	e2e.WriteFile(t, started, "012")
	for _, c := range []struct {
		name   string
		args   []string
		out    string // part of the expected output
		arrive string // the last command of those that count
	}{
		{"a listing", []string{base + "/pub/"}, `<a href="/pub/deep/">deep/</a>`, "MLSD"},
		{"a listing, by its type", []string{base + "/pub;type=d"}, `<a href="/pub/b%20c.bin">b c.bin</a>`, "MLSD"},
		{"a directory without its slash", []string{"-L", base + "/pub"}, `<a href="/pub/deep/">`, "MLSD"},
		{"HEAD", []string{"-I", base + "/a.txt"}, "Content-Length: 10\r\n", "SIZE a.txt"},
		{"the rest of a file", []string{"-C", "3", base + "/a.txt"}, "3456789", "RETR a.txt"},
		{"the rest of a file that was begun", []string{"-C", "-", "-o", started, "-w", "%{size_download}", base + "/a.txt"}, "7", "RETR a.txt"},
		{"an upload", []string{"-i", "-T", started, base + "/up.txt"}, "HTTP/1.1 405 ", "RETR a.txt"},
		{"somebody's credentials", []string{"-i", "-u", "u:p", base + "/a.txt"}, "HTTP/1.1 400 ", "RETR a.txt"},
	} {
		out := e2e.RunPeer(t, append(append(argv[:len(argv):len(argv)], "-x", p.Listen), c.args...), e2e.CleanEnv()).Want(t, 0)
		if !strings.Contains(out.Stdout, c.out) {
			t.Errorf("%s: %s", c.name, out.Stdout)
		}
		s.Wait()
		verbs := []string{"RETR", "MLSD", "STOR"}
		if c.name == "HEAD" {
			verbs = []string{"RETR", "MLSD", "SIZE"}
		}
		if lines := s.Lines(verbs...); lines[len(lines)-1] != c.arrive {
			t.Errorf("%s: arrived %q last", c.name, lines[len(lines)-1])
		}
	}
	if text, err := os.ReadFile(started); err != nil || string(text) != "0123456789" {
		t.Errorf("the file that was begun has become %q, %v", text, err)
	}
	for _, line := range s.Lines("USER", "PASS") {
		if line != "USER anonymous" && line != "PASS anonymous@" {
			t.Errorf("arrived: %s", line)
		}
	}
}

// If the server breaks off a transfer, the client's transfer breaks off too.
func TestFTPBreaksOff(t *testing.T) {
	t.Parallel()
	argv := e2e.NeedCommand("curl", "-q", "-sS")(t)
	s := e2e.StartFTP(t, &ftptest.Server{Transfer: func(data net.Conn, content string) string {
		if content == e2e.FTPRobots {
			io.WriteString(data, content)
			return "226 done"
		}
		io.WriteString(data, content[:100_000])
		return "426 broken off"
	}})
	p := e2e.StartProxy(t, e2e.Settings{})
	address := "ftp://" + s.Addr() + "/pub/b%20c.bin"
	const partialFile = 18
	out := e2e.RunPeer(t, append(argv, "-x", p.Listen, address), e2e.CleanEnv()).Want(t, partialFile)
	if len(out.Stdout) != 100_000 {
		t.Errorf("%d bytes came", len(out.Stdout))
	}
	if r := e2e.AwaitRecord(t, p.Audit, address); r.Error == "" || r.Bytes != 100_000 {
		t.Errorf("%+v", r)
	}
}

// run also makes FTP clients use its proxy.
func TestFTPInARun(t *testing.T) {
	t.Parallel()
	h := e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"robots.max_crawl_delay": "1ms"}))
	for _, argv := range [][]string{e2e.NeedCommand("wget", "-q", "-O", "-")(t), e2e.NeedCommand("curl", "-q", "-sS")(t)} {
		s := e2e.StartFTP(t, &ftptest.Server{})
		out := e2e.Command(t, h.RunArgs(append(argv, "ftp://"+s.Addr()+"/a.txt")...)...).Want(t, 0)
		if out.Stdout != "0123456789" || !strings.Contains(out.Stderr, "1 allowed") {
			t.Errorf("%q\n%s", out.Stdout, out.Stderr)
		}
		if lines := s.Lines("RETR"); !slices.Equal(lines, []string{"RETR robots.txt", "RETR a.txt"}) {
			t.Errorf("arrived: %q", lines)
		}
	}
}
