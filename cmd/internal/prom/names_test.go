package prom

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"robotsproxy/robots/testkit"
)

const (
	metricsPage = "../../../docs/metrics.md"
	dashboard   = "../../../docs/grafana/robotsproxy.json"
	alerts      = "../../../docs/prometheus/alerts.yaml"
	alertTest   = "../../../docs/prometheus/alerts_test.yaml"
)

// The tables of docs/metrics.md are what is exported: name, type and labels.
func TestPageNamesTheMetrics(t *testing.T) {
	text, err := os.Open(metricsPage)
	testkit.Must(t, err)
	defer text.Close()
	var told []string
	for lines := bufio.NewScanner(text); lines.Scan(); {
		cells := strings.Split(lines.Text(), "|")
		if len(cells) == 6 && strings.HasPrefix(cells[1], " `robotsproxy_") {
			told = append(told, strings.Join(strings.Fields(strings.NewReplacer("`", "", ",", "").Replace(strings.Join(cells[1:4], " "))), " "))
		}
	}
	slices.Sort(told)
	if diff := cmp.Diff(exportedRows(t, newTestProxy(t)), told); diff != "" {
		t.Errorf("exported (-) and in docs/metrics.md (+):\n%s", diff)
	}
	alone := slices.DeleteFunc(told, onlyWithStore)
	if diff := cmp.Diff(exportedRows(t, newTestProxyWith(t, nil)), alone); diff != "" {
		t.Errorf("exported without a store (-) and in docs/metrics.md (+):\n%s", diff)
	}
}

// onlyWithStore says of a metric that it is there with a store alone.
func onlyWithStore(row string) bool {
	return strings.HasPrefix(row, "robotsproxy_store_") || strings.HasPrefix(row, "robotsproxy_pace_times_slower ")
}

// exportedRows are the exported metrics of this project: name, type and labels.
func exportedRows(t *testing.T, h testProxy) (exported []string) {
	t.Helper()
	for name, f := range scrape(t, h.metrics) {
		if !strings.HasPrefix(name, "robotsproxy_") {
			continue
		}
		row := []string{name, strings.ToLower(f.GetType().String())}
		for _, l := range f.GetMetric()[0].GetLabel() {
			row = append(row, l.GetName())
		}
		exported = append(exported, strings.Join(row, " "))
		if !strings.HasSuffix(f.GetHelp(), ".") {
			t.Errorf("%s: its help is no sentence: %q", name, f.GetHelp())
		}
	}
	slices.Sort(exported)
	return exported
}

// Names, units and types are as Prometheus's own conventions have them.
func TestLint(t *testing.T) {
	families, err := newTestProxy(t).metrics.registry.Gather()
	testkit.Must(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	testkit.Must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// exports are the names that PromQL may use, and the labels and values of each.
type exports map[string]map[string][]string

func exported(t *testing.T) exports {
	t.Helper()
	all := exports{"up": {}, "ALERTS": {"alertname": nil, "alertstate": nil}} // Prometheus's own
	for name, f := range scrape(t, newTestProxy(t).metrics) {
		names := []string{name}
		switch f.GetType() {
		case dto.MetricType_HISTOGRAM:
			names = []string{name + "_bucket", name + "_sum", name + "_count"}
		case dto.MetricType_SUMMARY:
			names = []string{name, name + "_sum", name + "_count"}
		}
		for _, n := range names {
			labels := map[string][]string{}
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = append(labels[l.GetName()], l.GetValue())
				}
				for _, q := range m.GetSummary().GetQuantile() {
					if n == name && q.GetQuantile() == 1 {
						labels["quantile"] = []string{"1"}
					}
				}
			}
			if strings.HasSuffix(n, "_bucket") {
				labels["le"] = nil
			}
			all[n] = labels
		}
	}
	return all
}

var (
	selector  = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^}]*)\}`)
	matcher   = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouping  = regexp.MustCompile(`\b(by|without|on|ignoring)\s*\(([^)]*)\)`)
	lookback  = regexp.MustCompile(`\[[^\]]*\]`)
	word      = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	functions = strings.Fields("sum min max count group rate increase changes histogram_quantile time max_over_time and or unless")
	attached  = []string{"job", "instance"} // to each series, by Prometheus
)

// mistakes checks that an expression uses only names, labels and label values that are
// exported. It adds the metrics that the expression uses to used.
func (e exports) mistakes(expr string, used map[string]bool) (all []string) {
	labels := slices.Clone(attached)
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		known := e[s[1]]
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if slices.Contains(attached, m[1]) {
				continue
			}
			values, ok := known[m[1]]
			if !ok {
				all = append(all, s[1]+" has no label "+m[1])
			}
			for v := range strings.SplitSeq(m[3], "|") {
				if ok && !slices.Contains(values, v) {
					all = append(all, "no "+s[1]+" has "+m[1]+"="+v)
				}
			}
		}
	}
	rest := selector.ReplaceAllString(expr, "$1")
	groups := grouping.FindAllStringSubmatch(rest, -1)
	rest = lookback.ReplaceAllString(grouping.ReplaceAllString(rest, " "), " ")
	for _, name := range word.FindAllString(rest, -1) {
		if known, ok := e[name]; ok {
			used[name] = true
			labels = slices.AppendSeq(labels, maps.Keys(known))
		} else if !slices.Contains(functions, name) {
			all = append(all, name+" is not exported")
		}
	}
	for _, g := range groups {
		for _, l := range word.FindAllString(g[2], -1) {
			if !slices.Contains(labels, l) {
				all = append(all, "nothing there has the label "+l)
			}
		}
	}
	return all
}

// unused returns the exported metrics of this project that are not in used.
func (e exports) unused(used map[string]bool) (all []string) {
	for name := range e {
		of := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if strings.HasPrefix(name, "robotsproxy_") && !used[name] && !used[of+"_bucket"] {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// A panel of the dashboard, as far as it counts here.
type panel struct {
	ID          int
	Type        string
	Title       string
	Description string
	GridPos     struct{ X, Y, W, H int }
	Datasource  struct{ UID string }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct {
		Expr       string
		Datasource struct{ UID string }
	}
}

type board struct {
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Annotations struct{ List []struct{ Expr string } }
}

func readBoard(t *testing.T) (b board) {
	t.Helper()
	text, err := os.ReadFile(dashboard)
	testkit.Must(t, err)
	testkit.Must(t, json.Unmarshal(text, &b))
	return b
}

// expressions are all of the dashboard's, by where they stand, as Prometheus is to
// read them.
func (b board) expressions() map[string]string {
	all := map[string]string{}
	for _, p := range b.Panels {
		for i, target := range p.Targets {
			all[p.Title+" "+string(rune('A'+i))] = target.Expr
		}
	}
	for _, a := range b.Annotations.List {
		if a.Expr != "" {
			all["annotations"] = a.Expr
		}
	}
	return all
}

func TestDashboard(t *testing.T) {
	b, e, used := readBoard(t), exported(t), map[string]bool{}
	for where, expr := range b.expressions() {
		for _, m := range e.mistakes(expr, used) {
			t.Errorf("%s: %s", where, m)
		}
		if !strings.Contains(expr, `job=~"$job",instance=~"$instance"`) {
			t.Errorf("%s: not of the jobs and instances that were chosen: %s", where, expr)
		}
	}
	if missing := e.unused(used); len(missing) > 0 {
		t.Errorf("in no panel: %s", missing)
	}
	var variables []string
	for _, v := range b.Templating.List {
		variables = append(variables, v.Name)
		if m := word.FindAllString(v.Definition, 2); v.Type == "query" && (len(m) < 2 || e[m[1]] == nil) {
			t.Errorf("variable %s: %q", v.Name, v.Definition)
		}
	}
	if want := []string{"datasource", "job", "instance"}; !slices.Equal(variables, want) {
		t.Errorf("variables %v, want %v", variables, want)
	}
	seen := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range b.Panels {
		if seen[p.ID] {
			t.Errorf("%s: its id %d is another's too", p.Title, p.ID)
		}
		seen[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := taken[at]; other != "" || at[0] >= 24 {
					t.Fatalf("%s lies over %q or the edge at %v", p.Title, other, at)
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if !strings.HasSuffix(p.Description, ".") || p.FieldConfig.Defaults.Unit == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s lacks a description, a unit, the chosen data source or a query", p.Title)
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("%s asks another data source: %s", p.Title, target.Datasource.UID)
			}
		}
	}
}

var (
	alertName = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
	alertExpr = regexp.MustCompile(`(?m)^        expr: (?:\|\n((?:          .*\n)+)|(.*)$)`)
)

func TestAlerts(t *testing.T) {
	text, err := os.ReadFile(alerts)
	testkit.Must(t, err)
	tests, err := os.ReadFile(alertTest)
	testkit.Must(t, err)
	e := exported(t)
	all := alertName.FindAllSubmatchIndex(text, -1)
	if len(all) < 10 {
		t.Errorf("%d alerts", len(all))
	}
	for i, at := range all {
		name, end := string(text[at[2]:at[3]]), len(text)
		if i+1 < len(all) {
			end = all[i+1][0]
		}
		rule := string(text[at[0]:end])
		for _, must := range []string{"labels: {severity: ", "summary: \"", "description: \"", "action: \""} {
			if !strings.Contains(rule, must) {
				t.Errorf("%s lacks %s", name, must)
			}
		}
		expr := alertExpr.FindStringSubmatch(rule)
		if expr == nil {
			t.Fatalf("%s has no expr", name)
		}
		for _, m := range e.mistakes(expr[1]+expr[2], map[string]bool{}) {
			t.Errorf("%s: %s", name, m)
		}
		if !strings.Contains(string(tests), `{alertname="`+name+`"}`) {
			t.Errorf("no test has %s fire", name)
		}
	}
	for _, name := range regexp.MustCompile(`robotsproxy_\w+`).FindAllString(string(text)+string(tests), -1) {
		if e[name] == nil {
			t.Errorf("%s is not exported", name)
		}
	}
}

// What finds mistakes in expressions must be able to.
func TestMistakesAreFound(t *testing.T) {
	e := exports{"a_total": {"reason": {"rule"}}}
	for _, c := range []struct {
		name, expr string
		bad        bool
	}{
		{"right", `sum by (job, reason) (rate(a_total{reason=~"rule",job="x"}[5m])) > 0.5`, false},
		{"another metric", `rate(b_total[5m])`, true},
		{"another label", `a_total{cause="rule"}`, true},
		{"another value", `a_total{reason=~"rule|law"}`, true},
		{"grouped by nothing", `sum by (host) (a_total)`, true},
	} {
		if found := e.mistakes(c.expr, map[string]bool{}); (len(found) > 0) != c.bad {
			t.Errorf("%s: %q", c.name, found)
		}
	}
}
