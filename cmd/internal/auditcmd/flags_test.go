package auditcmd

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/trail"
)

// A fleetAudit is the audits of three replicas that asked one site in turn, each in a
// directory of its own: a compressed file, one that was set aside, and one that is
// written.
type fleetAudit struct {
	t     *testing.T
	home  string
	files []string
	tapes []*chain
}

func newFleetAudit(t *testing.T) *fleetAudit {
	t.Helper()
	a := &fleetAudit{t: t, home: t.TempDir()}
	for r := range 3 {
		dir := filepath.Join(a.home, fmt.Sprintf("proxy-%d", r))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path, c := filepath.Join(dir, "audit.jsonl"), &chain{}
		a.files, a.tapes = append(a.files, path), append(a.tapes, c)
		for i, name := range []string{trail.SegmentPath(path, 1) + ".gz", trail.SegmentPath(path, 3), path} {
			text := a.record(r, 6*i+r) + a.record(r, 6*i+3+r)
			if strings.HasSuffix(name, ".gz") {
				var packed bytes.Buffer
				z := gzip.NewWriter(&packed)
				io.WriteString(z, text)
				z.Close()
				text = packed.String()
			}
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return a
}

// record is a replica's, of a request that came in a second and took one.
func (a *fleetAudit) record(replica, second int) string {
	decision, reason := "allow", "no-rule"
	if second%5 == 4 {
		decision, reason = "block", "unreachable"
	}
	return a.tapes[replica].seal(fmt.Sprintf(`"time":"2026-11-21T05:00:%02d.5Z","id":"%d-%d","replica":"proxy-%d","client":"lab","method":"GET","url":"http://a.test/%d","host":"a.test","decision":%q,"reason":%q,"enforced":true,"status":200,"duration_ms":1000`,
		second, replica, second, replica, second, decision, reason))
}

// do runs an audit command over args.
func (a *fleetAudit) do(args ...string) (status int, out, errOut string) {
	a.t.Helper()
	var o, e bytes.Buffer
	status = cli.Execute(a.t.Context(), Command(), args, nil, &o, &e)
	return status, o.String(), e.String()
}

func (a *fleetAudit) has(text string, all ...string) {
	a.t.Helper()
	for _, want := range all {
		if !strings.Contains(text, want) {
			a.t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
}

func TestReportOfSeveralAudits(t *testing.T) {
	a := newFleetAudit(t)
	status, out, errOut := a.do(append([]string{"report"}, a.files...)...)
	if status != 0 || errOut != "" {
		t.Errorf("status %d, %s", status, errOut)
	}
	a.has(out, "  requests   18: 15 allowed, 0 disallowed, 0 deferred, 3 failed\n", "  files      9, from proxy-0/audit-000000000001.jsonl.gz to proxy-2/audit.jsonl\n",
		"  chain      holds in each of 3 audits: ", "\n  proxy-0         6        5           0         0       1 ", "\n  proxy-1/audit.jsonl      3      6         6        0     0  holds  6:")
	if strings.Contains(out, a.home) {
		t.Error("whole paths stand in the report")
	}
	var flags []string
	for _, f := range a.files {
		flags = append(flags, "--file", f)
	}
	if _, same, _ := a.do(append([]string{"report"}, flags...)...); belowHead(same) != belowHead(out) {
		t.Errorf("by --file it is another:\n%s", same)
	}
	// What the shell makes of */* has the files that were set aside too.
	all, err := filepath.Glob(filepath.Join(a.home, "*", "*"))
	if err != nil || len(all) != 9 {
		t.Fatal(all, err)
	}
	if _, same, _ := a.do(append([]string{"report"}, append(all, a.files[1])...)...); belowHead(same) != belowHead(out) {
		t.Errorf("by all files it is another:\n%s", same)
	}
	t.Chdir(filepath.Dir(a.files[0]))
	if _, same, _ := a.do(append([]string{"report", "audit.jsonl", "audit-000000000003.jsonl"}, a.files...)...); belowHead(same) != belowHead(out) {
		t.Errorf("with relative paths of some it is another:\n%s", same)
	}
	a.spoil(1)
	status, out, errOut = a.do(append([]string{"report"}, a.files...)...)
	if status != 1 || !strings.HasPrefix(errOut, "robotsproxy: the chain of the audit is broken: proxy-1/audit.jsonl:1: seq 5: changed: ") {
		t.Errorf("status %d, %s", status, errOut)
	}
	a.has(out, "  requests   18: ", "BROKEN: proxy-1/audit.jsonl:1: seq 5: changed: ")
	if status, _, errOut = a.do("report", a.files[0], a.home+"/none"); status != 1 || !strings.Contains(errOut, "no audit at "+a.home+"/none:") {
		t.Errorf("of one that is not there: status %d, %s", status, errOut)
	}
	dir := filepath.Dir(a.files[0])
	for _, reads := range []string{"report", "verify", "tail"} {
		if status, _, errOut = a.do(reads, dir, a.files[1]); status != 1 || !strings.Contains(errOut, dir+" is a directory: use "+a.files[0]) {
			t.Errorf("%s of a directory: status %d, %s", reads, status, errOut)
		}
	}
}

// belowHead is a report without the line that says when it was made.
func belowHead(s string) string { _, rest, _ := strings.Cut(s, "\n"); return rest }

// spoil changes a line of a replica's audit.
func (a *fleetAudit) spoil(replica int) {
	a.t.Helper()
	text, err := os.ReadFile(a.files[replica])
	if err != nil {
		a.t.Fatal(err)
	}
	if err := os.WriteFile(a.files[replica], bytes.Replace(text, []byte("lab"), []byte("LAB"), 1), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func TestVerifyOfSeveralAudits(t *testing.T) {
	a := newFleetAudit(t)
	status, out, _ := a.do(append([]string{"verify"}, a.files...)...)
	if status != 0 || strings.Count(out, "Consistent; none of the 6 lines is covered") != 3 {
		t.Errorf("status %d:\n%s", status, out)
	}
	a.has(out, a.files[0]+"\nConsistent; none of the 6 lines is covered", "\n\n"+a.files[2]+"\nConsistent; none of the 6 lines is covered", "lines   6 in 3 files, seq 1 to 6\n")
	_, out, _ = a.do(append([]string{"verify", "--anchor"}, a.files...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, line := range lines {
		anchor, file, _ := strings.Cut(line, "  ")
		if status, _, errOut := a.do("verify", "--since-anchor", anchor, file); status != 0 || file != a.files[i] {
			t.Errorf("%s: status %d, %s", line, status, errOut)
		}
	}
	if status, _, errOut := a.do("verify", "--since-anchor", "1:"+strings.Repeat("0", 32), "--from", "3", a.files[0]); status != 2 || !strings.Contains(errOut, "needs the lines from seq 2") {
		t.Errorf("lines after the anchor that --from leaves out: status %d, %s", status, errOut)
	}
	a.spoil(1)
	status, out, errOut := a.do(append([]string{"verify"}, a.files...)...)
	if status != 1 || strings.Count(out, "Consistent; none of the 6 lines is covered") != 2 || strings.Contains(out, a.files[1]) || !strings.HasPrefix(errOut, "robotsproxy: "+a.files[1]+":1: seq 5: changed: ") {
		t.Errorf("status %d, %s\n%s", status, errOut, out)
	}
	if status, _, errOut := a.do(append([]string{"verify", "--since-anchor", "1:" + strings.Repeat("0", 32)}, a.files...)...); status != 2 || !strings.Contains(errOut, "--since-anchor need exactly one audit") {
		t.Errorf("status %d, %s", status, errOut)
	}
}

func TestExplainOfSeveralAudits(t *testing.T) {
	a := newFleetAudit(t)
	args := []string{"explain", "2-5"}
	for _, f := range a.files {
		args = append(args, "--file", f)
	}
	status, out, errOut := a.do(args...)
	if status != 0 {
		t.Errorf("status %d, %s", status, errOut)
	}
	a.has(out, "http://a.test/5", "replica:        proxy-2\n", a.files[2][:len(a.files[2])-len("audit.jsonl")])
	args[1] = "2-4"
	if status, _, errOut := a.do(args...); status != 1 || strings.Count(errOut, "no such record in ") != 3 {
		t.Errorf("status %d, %s", status, errOut)
	}
	if _, _, errOut = a.do("explain", "2-5", "--file", a.files[0]); !strings.Contains(errOut, "--file for the audit of another replica") {
		t.Errorf("nothing is said of the other replicas: %s", errOut)
	}
}

func TestTailOfSeveralAudits(t *testing.T) {
	a := newFleetAudit(t)
	for _, n := range []int{0, 1, 7, 100} {
		_, out, errOut := a.do(append([]string{"tail", "--color", "never", "-n", fmt.Sprint(n)}, a.files...)...)
		var got []string
		for line := range strings.Lines(out) {
			if at := strings.Index(line, "a.test/"); at >= 0 {
				got = append(got, strings.Fields(line[at+len("a.test/"):])[0])
			}
		}
		var want []string
		for second := max(0, 18-n); second < 18; second++ {
			want = append(want, fmt.Sprint(second))
		}
		if !slices.Equal(got, want) || errOut != "" {
			t.Errorf("-n %d: %v, want %v; %s", n, got, want, errOut)
		}
	}
	_, out, _ := a.do("tail", "-n", "1", a.files[1])
	a.has(out, "  replica proxy-1  client lab")
}

// Those that come are followed from file to file, and so is a replica that is new.
func TestTailFollowsSeveralAudits(t *testing.T) {
	t.Parallel()
	a := newFleetAudit(t)
	later := filepath.Join(a.home, "proxy-3", "audit.jsonl")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	outRead, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Execute(ctx, Command(), append([]string{"tail", "-f", "--json", "-n", "1", later}, a.files...), nil, out, io.Discard)
		out.Close()
	}()
	shown := bufio.NewScanner(outRead)
	next := func() string {
		t.Helper()
		if !shown.Scan() {
			t.Fatal("it has ended")
		}
		return shown.Text() + "\n"
	}
	if got := next(); !strings.Contains(got, `"id":"2-17"`) {
		t.Errorf("at first: %s", got)
	}
	add := func(path, line string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(line)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(a.files[0], trail.SegmentPath(a.files[0], 5)); err != nil {
		t.Fatal(err)
	}
	line := a.record(0, 18)
	add(a.files[0], line)
	if got := next(); got != line {
		t.Errorf("behind a file that was set aside: %s", got)
	}
	if err := os.Mkdir(filepath.Dir(later), 0o700); err != nil {
		t.Fatal(err)
	}
	a.tapes = append(a.tapes, &chain{})
	line = a.record(3, 19)
	add(later, line)
	if got := next(); got != line {
		t.Errorf("of the new one: %s", got)
	}
	cancel()
	if status := <-ended; status != 0 {
		t.Errorf("status %d", status)
	}
}

// Each replica may hash clients with its own key, so one name has several hashes.
func TestClientOfSeveralAudits(t *testing.T) {
	a := newFleetAudit(t)
	cfg := filepath.Join(a.home, "config.yaml")
	if err := os.WriteFile(cfg, []byte("audit: {clients: hash}\nstate_dir: "+a.home+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, f := range a.files {
		dir := filepath.Dir(f)
		if err := os.Mkdir(filepath.Join(dir, cli.SnapshotsName), 0o700); err != nil {
			t.Fatal(err)
		}
		key := bytes.Repeat([]byte{byte(i / 2)}, daemon.SecretBytes)
		if err := os.WriteFile(filepath.Join(dir, cli.KeyName), key, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, out, errOut := a.do("report", "-c", cfg, "--client", "lab", a.files[0], a.files[1])
	hash := audit.Pseudonym(make([]byte, daemon.SecretBytes))("lab")
	if !strings.Contains(out, "filters    client "+hash) || errOut != "" {
		t.Errorf("of one key: %s, %s", out, errOut)
	}
	if status, _, errOut := a.do("report", "-c", cfg, "--client", "lab", a.files[0], a.files[2]); status != 1 || !strings.Contains(errOut, "client lab has different hashes in "+a.files[2]) {
		t.Errorf("of two keys: status %d, %s", status, errOut)
	}
}

func TestSeveralAuditsUsage(t *testing.T) {
	a := newFleetAudit(t)
	many := slices.Repeat(a.files[:1], maxAudits+1)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"standard input among them": {[]string{"report", "-", a.files[0]}, "standard input cannot be combined with other files"},
		"an empty name":             {[]string{"verify", a.files[0], ""}, "must not be empty"},
		"with a run":                {[]string{"tail", "--run", "last", a.files[0]}, "exclude each other"},
		"too many":                  {append([]string{"report"}, many...), "at most 100 audits can be read at once, got 101"},
		"files for an ID":           {append([]string{"explain", "2-5"}, a.files...), "expected exactly one record ID; put --file before the name of each file"},
		"where there is one":        {[]string{"snapshot", "--list", "--file", a.files[0], "--file", a.files[1]}, "this command reads one audit only"},
	} {
		if status, _, errOut := a.do(c.args...); status != 2 || !strings.Contains(errOut, c.want) {
			t.Errorf("%s: status %d, %s", name, status, errOut)
		}
	}
}
