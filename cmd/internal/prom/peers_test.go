package prom

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"
)

// promtool runs Prometheus's own tool, with what is given on its standard input.
func promtool(t *testing.T, input string, args ...string) {
	t.Helper()
	testkit.Long(t, "real peers")
	if _, err := exec.LookPath("promtool"); err != nil {
		testkit.Missing(t, "promtool")
	}
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
}

func TestPromtool(t *testing.T) {
	t.Run("metrics", func(t *testing.T) {
		w := httptest.NewRecorder()
		newTestProxy(t).metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		promtool(t, w.Body.String(), "check", "metrics")
	})
	t.Run("alerts", func(t *testing.T) { t.Parallel(); promtool(t, "", "check", "rules", alerts) })
	t.Run("their test", func(t *testing.T) { t.Parallel(); promtool(t, "", "test", "rules", alertTest) })
	t.Run("dashboard", func(t *testing.T) { // its expressions, as if they were rules
		filled := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "5m")
		type rule struct {
			Record string `json:"record"`
			Expr   string `json:"expr"`
		}
		var rules []rule
		for _, expr := range readBoard(t).expressions() {
			rules = append(rules, rule{"a:b", filled.Replace(expr)})
		}
		text, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}}) // JSON is YAML
		testkit.Must(t, err)
		file := filepath.Join(t.TempDir(), "panels.yaml")
		testkit.Must(t, os.WriteFile(file, text, 0o600))
		promtool(t, "", "check", "rules", file)
	})
}
