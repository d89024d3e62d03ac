package daemon

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots/testkit"
)

// TestReloadRefusesWhole: what is wrong, or takes a restart, is said all at once, and
// nothing of the rest is in force.
func TestReloadRefusesWhole(t *testing.T) {
	t.Parallel()
	noCA := filepath.Join(t.TempDir(), "none.pem")
	for name, c := range map[string]struct {
		keys keys
		text string // in place of keys
		want []string
	}{
		"what is valid only after a restart": {
			keys: keys{"admin.listen": "127.0.0.1:0", "listen": "0.0.0.0:1", "open": true, "pace.requests_per_second": -1},
			want: []string{":1: pace.requests_per_second: "},
		},
		"mistakes":          {keys: keys{"pace.burst": 0, "mode": "no"}, want: []string{":1: mode: ", ":1: pace.burst: must be between"}},
		"no YAML":           {text: "mode: [", want: []string{"not YAML"}},
		"a CA that is not":  {keys: keys{"mode": "monitor", "tls.ca_cert": noCA, "tls.ca_key": noCA}, want: []string{"CA certificate: "}},
		"half an identity":  {keys: keys{"identity.require": "token", "identity.user_agent": "Mozilla/5.0"}, want: []string{"identity.user_agent: "}},
		"roots that are no": {keys: keys{"mode": "monitor", "egress.extra_ca": noCA}, want: []string{"egress.extra_ca: "}},
	} {
		t.Run(name, func(t *testing.T) {
			s := stand(t, nil)
			refused := func() error { return s.reload(c.keys) }
			if c.text != "" {
				refused = func() error {
					testkit.Must(t, os.WriteFile(s.file, []byte(c.text), 0o600))
					return s.daemon.Reload(t.Context())
				}
			}
			s.refuses(refused, c.want)
			if err := s.reload(keys{"pace.burst": 7}); err != nil {
				t.Errorf("put right: %v", err)
			}
			if ok, _, last, lastErr := s.daemon.Reloads(); ok == 0 || last.IsZero() || lastErr != nil {
				t.Errorf("%d, %v, %v", ok, last, lastErr)
			}
		})
	}
}

// refuses fails the test unless reload fails with these lines, and changes nothing.
func (s *standing) refuses(reload func() error, want []string) {
	s.t.Helper()
	before := s.daemon.Active.Load()
	err := reload()
	if err == nil {
		s.t.Fatal("it is taken")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		s.t.Errorf("said: %q", lines)
	}
	for i, want := range want {
		if !strings.Contains(lines[min(i, len(lines)-1)], want) {
			s.t.Errorf("said: %q, want %q", lines, want)
		}
	}
	if s.daemon.Active.Load() != before {
		s.t.Error("something is in force")
	}
	if status, _ := s.get(s.origin.URL+"/private", nil); status != http.StatusForbidden {
		s.t.Errorf("status %d", status)
	}
	ok, failed, last, lastErr := s.daemon.Reloads()
	if ok != 0 || failed == 0 || !last.IsZero() || lastErr == nil {
		s.t.Errorf("%d, %d, %v, %v", ok, failed, last, lastErr)
	}
}

// TestReloadKeepsWhatItCan: a reload creates again only what has changed.
func TestReloadKeepsWhatItCan(t *testing.T) {
	t.Parallel()
	s := stand(t, nil)
	s.get(s.origin.URL+"/page", nil)
	first := s.daemon.Active.Load()
	if err := s.reload(nil); err != nil || s.daemon.Active.Load() != first {
		t.Errorf("with nothing changed: %v", err)
	}
	if err := s.reload(keys{"hosts": []any{map[string]any{"match": "example.com"}}}); err != nil {
		t.Fatal(err)
	}
	second := s.daemon.Active.Load()
	if second == first || second.rules.Egress != first.rules.Egress || second.rules.Authority != first.rules.Authority {
		t.Error("an entry of hosts, and the egress client or the CA was made anew")
	}
	if err := s.reload(keys{"egress.ports": []int{1, 80}, "mode": "monitor"}); err != nil {
		t.Fatal(err)
	}
	third := s.daemon.Active.Load()
	if third.rules.Egress == second.rules.Egress || third.rules.Egress.Pseudonym() != second.rules.Egress.Pseudonym() {
		t.Error("an egress client for other ports is the same, or of another name")
	}
	if err := s.reload(nil); err != nil {
		t.Fatal(err)
	}
	if status, _ := s.get(s.origin.URL+"/page", nil); status != http.StatusOK || s.origin.asked("/robots.txt") != 1 {
		t.Errorf("status %d, robots.txt was fetched %d times", status, s.origin.asked("/robots.txt"))
	}
}

// TestReloadTheStatesOwnCA: after it was rotated.
func TestReloadTheStatesOwnCA(t *testing.T) {
	t.Parallel()
	s := stand(t, nil)
	before, old := s.daemon.CAPEM(), s.daemon.Active.Load().rules.Authority
	failHandshake(t, old)
	state := s.base["state_dir"].(string)
	for _, name := range []string{"ca.pem", "ca.key"} {
		if err := os.Remove(filepath.Join(state, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.daemon.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := s.daemon.CAPEM(); bytes.Equal(before, after) || !strings.Contains(s.said.String(), "ca_sha256") {
		t.Errorf("the CA of before is in force; said:\n%s", s.said)
	}
	failHandshake(t, old) // of a tunnel that was opened before the reload
	if n := s.daemon.Active.Load().rules.Authority.Stats().Failed[mitm.FaultClosed]; n != 2 {
		t.Errorf("%d failed handshakes are counted, want those with both CAs, 2", n)
	}
}

// failHandshake lets a client disconnect before its handshake with a.
func failHandshake(t *testing.T, a *mitm.Authority) {
	t.Helper()
	client, conn := net.Pipe()
	client.Close()
	defer conn.Close()
	if _, err := a.Handshake(t.Context(), conn, "site.test", 443); err == nil {
		t.Fatal("the handshake did not fail")
	}
}

// TestReloadOnASignal, on a storm of them, and by the operator at the same time.
func TestReloadOnASignal(t *testing.T) {
	t.Parallel()
	s := stand(t, nil)
	s.base.with(keys{"mode": "monitor"}).file(t, s.file+".new")
	if err := os.Rename(s.file+".new", s.file); err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for range 20 {
				select {
				case s.hup <- os.Interrupt:
				default:
				}
				if err := s.daemon.Reload(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	asking.Wait()
	if status, _ := s.get(s.origin.URL+"/private", nil); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	if ok, failed, _, _ := s.daemon.Reloads(); failed != 0 || ok == 0 {
		t.Errorf("%d reloads, %d failed", ok, failed)
	}
	if n := strings.Count(s.said.String(), "key=mode"); n != 1 {
		t.Errorf("the change is told of %d times:\n%s", n, s.said)
	}
	s.stop()
	if err := s.daemon.Reload(t.Context()); err == nil {
		t.Error("reloaded after the end")
	}
}

// TestReloadTellsNoSecrets in the log, nor where it is refused.
func TestReloadTellsNoSecrets(t *testing.T) {
	s := stand(t, nil)
	const secret = "sesame-open-sesame"
	for _, k := range []keys{
		{"admin.token": secret, "egress.parent": "http://u:" + secret + "@127.0.0.1:9"},
		{"admin.token": secret + "2", "egress.parent": "http://u:" + secret + "2@127.0.0.1:9", "log.format": "json"},
		{"admin.token": secret, "hosts": []any{item{"match": "a.test", "parent": "http://u:" + secret + "@127.0.0.1:9"}}},
		{"admin.token": secret, "hosts": []any{item{"match": "a.test", "parent": "socks5://u:" + secret + "2@127.0.0.1:9"}}},
		{"admin.token": secret, "hosts": []any{item{"match": "a.test", "parent": "http://u%3a:" + secret + "@127.0.0.1:9"}}},
		{"admin.token": secret, "store.redis": "redis://:" + secret + "@127.0.0.1:9"},
		{"admin.token": secret, "store.redis": "redis://" + secret + "@127.0.0.1:9?password=" + secret},
		{"admin.token": secret + "\x00", "egress.parent": "http://u:" + secret + "@127.0.0.1:9/x"},
	} {
		err := s.reload(k)
		if strings.Contains(fmt.Sprint(err), secret) {
			t.Errorf("the error has it: %v", err)
		}
	}
	if strings.Contains(s.said.String(), secret) || !strings.Contains(s.said.String(), "admin.token") {
		t.Errorf("said:\n%s", s.said)
	}
}

// TestReloadOfWhatIsShown: what the audit leaves out from now on, the operator's side does.
func TestReloadOfWhatIsShown(t *testing.T) {
	t.Parallel()
	s := stand(t, keys{"admin.listen": "127.0.0.1:0"})
	s.base = s.base.with(keys{"admin.listen": "127.0.0.1:0"})
	shown := func() string {
		s.get(s.origin.URL+"/private?q=hush", nil)
		feed := s.daemon.feed
		lines, _ := feed.After(feed.Newest()-1, 1)
		return string(lines[0].JSON)
	}
	if got := shown(); !strings.Contains(got, "q=hush") || !strings.Contains(got, `"client":"127.0.0.1"`) {
		t.Errorf("at first: %s", got)
	}
	if err := s.reload(keys{"audit.query_strings": "drop", "audit.clients": "hash"}); err != nil {
		t.Fatal(err)
	}
	if got := shown(); strings.Contains(got, "q=hush") || strings.Contains(got, `"client":"127.0.0.1"`) || !strings.Contains(got, "/private") {
		t.Errorf("then: %s", got)
	}
}

// TestReloadWithoutAFile reads certificates and the CA, and says so.
func TestReloadWithoutAFile(t *testing.T) {
	s := standBy(t, nil, func(from *settings) { from.file = "" })
	if err := os.WriteFile(s.file, []byte("mode: monitor\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.daemon.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, _ := s.get(s.origin.URL+"/private", nil); status != http.StatusForbidden {
		t.Errorf("status %d", status)
	}
	if got := s.said.String(); !strings.Contains(got, "certificates reloaded, no configuration file") {
		t.Errorf("said:\n%s", got)
	}
}

// TestRereadable: only a file can be read again.
func TestRereadable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := []string{(&cli.ConfigFlags{File: file}).ReloadFile(), (&cli.ConfigFlags{File: os.DevNull}).ReloadFile(), (&cli.ConfigFlags{}).ReloadFile()}
	if want := []string{file, "", ""}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestReloadAppliesWhatItCan: what needs a restart keeps its value and is told; the rest is in force.
func TestReloadAppliesWhatItCan(t *testing.T) {
	t.Parallel()
	s := stand(t, nil)
	changed := keys{"listen": "127.0.0.1:1", "log.format": "json", "audit.file": "/elsewhere", "pace.burst": 3}
	// The second time, nothing has changed.
	for range 2 {
		if err := s.reload(changed); err != nil {
			t.Fatal(err)
		}
		cfg := s.daemon.Active.Load().Cfg
		if cfg.Pace.Burst != 3 || cfg.Listen != "127.0.0.1:0" || cfg.Log.Format != "text" || cfg.Audit.File != "" {
			t.Errorf("in force are burst %d, %s, %s and %q", cfg.Pace.Burst, cfg.Listen, cfg.Log.Format, cfg.Audit.File)
		}
		if keys := s.daemon.needRestart(); !slices.Equal(keys, []string{"listen", "audit.file", "log.format"}) {
			t.Errorf("need a restart: %q", keys)
		}
		if warnings := strings.Join(s.daemon.warnings(), "\n"); !strings.Contains(warnings, "need a restart: listen, audit.file, log.format") {
			t.Errorf("warnings: %q", warnings)
		}
	}
	noTLS := filepath.Join(t.TempDir(), "none.pem")
	if err := s.reload(keys{"listen_tls.cert": noTLS, "listen_tls.key": noTLS}); err != nil || len(s.daemon.needRestart()) != 2 {
		t.Errorf("TLS of the port: %v, %q", err, s.daemon.needRestart())
	}
	if err := s.reload(keys{"pace.burst": 4}); err != nil || len(s.daemon.needRestart()) > 0 {
		t.Errorf("put right: %v, %q", err, s.daemon.needRestart())
	}
}

// TestReloadIsValidWithoutRestart: what is valid only together with a change that needs a restart is refused.
func TestReloadIsValidWithoutRestart(t *testing.T) {
	t.Parallel()
	s := stand(t, keys{"listen": "0.0.0.0:0", "open": true})
	s.refuses(func() error { return s.reload(keys{"listen": "127.0.0.1:1", "open": false}) }, []string{
		"listen: changed from 0.0.0.0:0 to 127.0.0.1:1: needs a restart", "listen: ",
	})
}
