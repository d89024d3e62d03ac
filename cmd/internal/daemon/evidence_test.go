package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots/testkit"
)

// adminPage returns a page of the admin listener.
func (s *standing) adminPage(path string) string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.daemon.AdminURL()+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %d, %v", path, resp.StatusCode, err)
	}
	return string(text)
}

const adminToken = "0123456789abcdef0123456789abcdef"

func TestTheAdminListenerReadsTheAudit(t *testing.T) {
	t.Parallel()
	anchors := filepath.Join(t.TempDir(), "anchors")
	s := stand(t, keys{"admin.listen": "127.0.0.1:0", "audit.anchor": map[string]any{"file": anchors}})
	s.get(s.origin.URL+"/private", nil)
	lines, err := s.daemon.verifyAudit(t.Context())
	if err != nil || lines == 0 {
		t.Errorf("%d lines, %v", lines, err)
	}
	var page bytes.Buffer
	if err := s.daemon.reportAudit(t.Context(), &page); err != nil || !strings.Contains(page.String(), "/private") {
		t.Errorf("%v: %.300s", err, page.String())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.daemon.verifyAudit(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("verification goes on after its context: %v", err)
	}
	if err := s.daemon.reportAudit(ended, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("the report goes on after its context: %v", err)
	}
	testkit.Eventually(t, "checkpoints were written", func() bool {
		all := s.daemon.checkpointPlaces()
		return len(all) == 2 && !all[0].Newest.IsZero() && all[1].At == anchors && !all[1].Newest.IsZero()
	})
	s.stop()
	text, err := os.ReadFile(s.daemon.AuditFile())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.daemon.AuditFile(), bytes.Replace(text, []byte("/private"), []byte("/Private"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = s.daemon.verifyAudit(t.Context())
	if _, broken := errors.AsType[*trail.Fault](err); !broken {
		t.Errorf("a changed line: %v", err)
	}
}

// The pages show the configuration that is active after a reload, without its secrets.
func TestTheAdminListenerFollowsAReload(t *testing.T) {
	t.Parallel()
	s := stand(t, keys{"admin.listen": "127.0.0.1:0", "admin.token": adminToken, "mode": "monitor"})
	s.get(s.origin.URL+"/private", nil)
	if page := s.adminPage(""); !strings.Contains(page, "Monitoring: nothing is blocked") {
		t.Errorf("overview: %.2000s", page)
	}
	metric := func(line string) {
		t.Helper()
		if text := s.adminPage("metrics"); !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no %q", line)
		}
	}
	metric("robotsproxy_monitor_mode 1")
	metric("robotsproxy_not_enforced_total 1")
	if config := s.adminPage("config"); !strings.Contains(config, "mode: monitor") || strings.Contains(config, adminToken) {
		t.Errorf("config: %.2000s", config)
	}
	hosts := []any{map[string]any{"match": "*.example", "robots": "ignore", "reason": "ticket 4711"}}
	if err := s.reload(keys{"mode": "enforce", "hosts": hosts}); err != nil {
		t.Fatal(err)
	}
	metric("robotsproxy_monitor_mode 0")
	if page := s.adminPage("exceptions"); !strings.Contains(page, "ticket 4711") || strings.Contains(page, "nothing is blocked") {
		t.Errorf("exceptions: %.2000s", page)
	}
	if config := s.adminPage("config"); !strings.Contains(config, "mode: enforce") {
		t.Errorf("config after the reload: %.2000s", config)
	}
}

// TestAuditKeepsItsNameWithTheStateDirectory: what state.db remembers about an audit in the state
// directory does not depend on the path of that directory.
func TestAuditKeepsItsNameWithTheStateDirectory(t *testing.T) {
	for _, tc := range []struct{ file, state, want string }{
		{"/before/audit.jsonl", "/before", "audit.jsonl"},
		{"/after/audit.jsonl", "/after/", "audit.jsonl"},
		{"/after/own/a.jsonl", "/after", "own/a.jsonl"},
		{"/logs/audit.jsonl", "/after", "/logs/audit.jsonl"},
		{"/after-all/audit.jsonl", "/after", "/after-all/audit.jsonl"},
	} {
		if got := auditName(tc.file, tc.state); got != tc.want {
			t.Errorf("%s in %s: %s, want %s", tc.file, tc.state, got, tc.want)
		}
	}
}
