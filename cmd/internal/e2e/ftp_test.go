package e2e

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

	"robotsproxy/proxy/egress/ftptest"
)

const ftpRobots = "User-agent: *\nDisallow: /private/\nCrawl-delay: 3\n"

// startFTP serves files and a robots.txt.
func startFTP(t testing.TB, s *ftptest.Server) *ftptest.Server {
	t.Helper()
	s.Files = map[string]string{
		"robots.txt": ftpRobots, "a.txt": "0123456789", "pub/b c.bin": string(octets(300_000)), "pub/deep/x": "x", "private/x": "secret",
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Clients that ask for ftp through the proxy are judged and paced as others are.
func TestFTPPeersAreMadePolite(t *testing.T) {
	for _, who := range peers {
		if !slices.Contains([]string{"curl-h1", "wget", "urllib"}, who.name) {
			continue // the others know no ftp
		}
		t.Run(who.name, func(t *testing.T) {
			t.Parallel()
			argv := who.need(t)
			s := startFTP(t, &ftptest.Server{})
			p := startProxy(t, settings{})
			base := "ftp://" + s.Addr()
			urls := []string{base + "/a.txt", base + "/private/x", base + "/pub/b%20c.bin", base + "/none"}
			got := who.fetch(t, argv, p.env(t), urls)
			for i, name := range []string{"a.txt", "", "pub/b c.bin"} {
				if want := s.Files[name]; name != "" && (got[i].Status != http.StatusOK || string(got[i].Body) != want) {
					t.Errorf("%s: %v", urls[i], got[i])
				}
			}
			wantOwn(t, got[1], http.StatusForbidden, "http_request_denied")
			wantNames(t, got[1], "/private/", 2, "*", base+"/robots.txt")
			r := awaitRecord(t, p.audit, urls[1])
			wantBlocked(t, r, "rule", http.StatusForbidden)
			if got[3].Status != http.StatusNotFound || got[3].Header.Get("Proxy-Status") != "" {
				t.Errorf("no such file: %v", got[3])
			}
			r = awaitRecord(t, p.audit, urls[2])
			if r.Decision != "allow" || r.Reason != "no-rule" || r.Bytes != 300_000 || r.RobotsURL != base+"/robots.txt" || r.CrawlDelay != 3 {
				t.Errorf("record of an allowed file: %+v", r)
			}
			s.Wait()
			if lines := s.Lines("RETR"); !slices.Equal(lines, []string{"RETR robots.txt", "RETR a.txt", "RETR pub/b c.bin", "RETR none"}) {
				t.Fatalf("arrived: %q", lines)
			}
			files := s.Commands("RETR")[1:]
			for i := 1; i < len(files); i++ {
				// The server notes a command when it reads it, which may be late.
				if gap := files[i].At.Sub(files[i-1].At); gap < 1200*time.Millisecond {
					t.Errorf("%s arrived %v after %s", files[i], gap, files[i-1])
				}
			}
		})
	}
}

// What is disallowed costs the server no more than its robots.txt.
func TestFTPDisallowed(t *testing.T) {
	t.Parallel()
	argv := needCommand("curl", "-q", "-sS")(t)
	s := startFTP(t, &ftptest.Server{})
	p := startProxy(t, settings{})
	out := runPeer(t, append(argv, "-x", p.listen, "ftp://"+s.Addr()+"/private/x"), cleanEnv()).want(t, 0)
	if !strings.Contains(out.stdout, "Disallow: /private/ (line 2)") {
		t.Error(out.stdout)
	}
	s.Wait()
	if lines := s.Lines("SIZE", "RETR", "CWD", "LIST", "MLSD"); !slices.Equal(lines, []string{"SIZE robots.txt", "RETR robots.txt"}) {
		t.Errorf("arrived: %q", lines)
	}
	out = command(t, "check", "-c", p.config, "ftp://"+s.Addr()+"/private/x").want(t, 1)
	if !strings.Contains(out.stdout, "disallowed ftp://") || !strings.Contains(out.stdout, "answer:         status 200: rules") {
		t.Error(out.stdout)
	}
}

func TestFTPByCurl(t *testing.T) {
	t.Parallel()
	argv := needCommand("curl", "-q", "-sS")(t)
	s := startFTP(t, &ftptest.Server{})
	p := startProxy(t, outOfTheWay.with(settings{"robots.max_crawl_delay": "1ms"}))
	base := "ftp://" + s.Addr()
	started := filepath.Join(t.TempDir(), "a.txt")
	writeFile(t, started, "012")
	for _, c := range []struct {
		name   string
		args   []string
		out    string // a part of what is printed
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
		out := runPeer(t, append(append(argv[:len(argv):len(argv)], "-x", p.listen), c.args...), cleanEnv()).want(t, 0)
		if !strings.Contains(out.stdout, c.out) {
			t.Errorf("%s: %s", c.name, out.stdout)
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

// A transfer that the server breaks off is broken for the client.
func TestFTPBreaksOff(t *testing.T) {
	t.Parallel()
	argv := needCommand("curl", "-q", "-sS")(t)
	s := startFTP(t, &ftptest.Server{Transfer: func(data net.Conn, content string) string {
		if content == ftpRobots {
			io.WriteString(data, content)
			return "226 done"
		}
		io.WriteString(data, content[:100_000])
		return "426 broken off"
	}})
	p := startProxy(t, settings{})
	address := "ftp://" + s.Addr() + "/pub/b%20c.bin"
	const partialFile = 18
	out := runPeer(t, append(argv, "-x", p.listen, address), cleanEnv()).want(t, partialFile)
	if len(out.stdout) != 100_000 {
		t.Errorf("%d octets came", len(out.stdout))
	}
	if r := awaitRecord(t, p.audit, address); r.Error == "" || r.Bytes != 100_000 {
		t.Errorf("%+v", r)
	}
}

// run leads clients of ftp through its proxy too.
func TestFTPInARun(t *testing.T) {
	t.Parallel()
	h := newHouse(t, outOfTheWay.with(settings{"robots.max_crawl_delay": "1ms"}))
	for _, argv := range [][]string{needCommand("wget", "-q", "-O", "-")(t), needCommand("curl", "-q", "-sS")(t)} {
		s := startFTP(t, &ftptest.Server{})
		out := command(t, h.runArgs(append(argv, "ftp://"+s.Addr()+"/a.txt")...)...).want(t, 0)
		if out.stdout != "0123456789" || !strings.Contains(out.stderr, "1 allowed") {
			t.Errorf("%q\n%s", out.stdout, out.stderr)
		}
		if lines := s.Lines("RETR"); !slices.Equal(lines, []string{"RETR robots.txt", "RETR a.txt"}) {
			t.Errorf("arrived: %q", lines)
		}
	}
}
