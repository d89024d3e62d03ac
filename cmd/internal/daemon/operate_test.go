package daemon

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/cli"
)

// TestTheOperatorIsToldWhereThingsAre, and that a reload was refused.
func TestTheOperatorIsToldWhereThingsAre(t *testing.T) {
	t.Parallel()
	s := stand(t, keys{"admin.listen": "127.0.0.1:0", "clients": []any{map[string]any{"name": "lab", "networks": []string{"127.0.0.0/8"}}}})
	type status struct {
		Commit, Go, Started, Proxy string
		Config                     string `json:"config_file"`
		State                      string `json:"state_dir"`
		Audit                      string `json:"audit_file"`
		CA                         struct{ SHA256, Expires string }
		Healthy, Ready             bool
		Reloads                    struct {
			OK, Refused uint64
			Errors      []string
		}
	}
	ask := func() (got status) {
		t.Helper()
		resp, err := http.Get(s.daemon.AdminURL() + "api/v1/status")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d, %v", resp.StatusCode, err)
		}
		return got
	}
	got := ask()
	state := s.base["state_dir"].(string)
	if got.Config != s.file || got.State != state || got.Audit != filepath.Join(state, cli.AuditName) || got.Proxy != s.daemon.Addr() || !got.Healthy || !got.Ready {
		t.Errorf("%+v", got)
	}
	if began, err := time.Parse(time.RFC3339Nano, got.Started); err != nil || time.Since(began) > time.Hour || strings.Count(got.CA.SHA256, ":") != 31 || got.CA.Expires == "" {
		t.Errorf("%+v, %v", got, err)
	}
	if !slices.Equal(s.daemon.clientNames(), []string{"lab"}) {
		t.Errorf("clients: %q", s.daemon.clientNames())
	}
	if s.reload(keys{"pace.burst": 0}) == nil {
		t.Fatal("it is taken")
	}
	if got := ask().Reloads; got.Refused == 0 || len(got.Errors) != 1 || !strings.Contains(got.Errors[0], "pace.burst") {
		t.Errorf("%+v", got)
	}
	if err := s.reload(keys{"pace.burst": 7}); err != nil {
		t.Fatal(err)
	}
	if got := ask().Reloads; got.OK == 0 || len(got.Errors) != 0 {
		t.Errorf("%+v", got)
	}
}
