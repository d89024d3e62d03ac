package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"robotsproxy/cmd/internal/auditcmd"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/audit"
	auditreport "robotsproxy/policy/audit/report"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

// reportEndings are how the name of a run's report may end, and the formats that it then has.
var reportEndings = map[string]string{"html": "html", "json": "json", "csv": "csv", "txt": "text"}

// A runReport is where the report of a run goes, and as what. The zero runReport is none.
type runReport struct {
	file  string
	write func(io.Writer, *auditreport.Report) error
	since time.Time // where the audit was there before the run; else zero
}

// newRunReport says before the run what would be wrong with its report.
func newRunReport(file string) (*runReport, error) {
	if file == "" {
		return &runReport{}, nil
	}
	format, known := reportEndings[strings.TrimPrefix(filepath.Ext(file), ".")]
	if !known {
		return nil, cli.UsageErrorf("--report %s: a name is wanted that ends in .html, .json, .csv or .txt", humanize.Printable(file))
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	if !auditcmd.IsDir(filepath.Dir(file)) {
		return nil, fmt.Errorf("--report: no directory %s", filepath.Dir(file))
	}
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("--report: %s is not a regular file", file)
	}
	write, err := auditcmd.ReportWriter(format, auditcmd.TopOfText, auditcmd.TopOfPage)
	return &runReport{file: file, write: write}, err
}

// begin looks whether the audit has something already that is not the run's.
func (r *runReport) begin(file string, now time.Time) {
	if _, err := os.Stat(file); err == nil {
		r.since = now
	}
}

// end makes it of the audit, which nobody writes any more.
func (r *runReport) end(file string) error {
	if r.file == "" {
		return nil
	}
	lines, err := trail.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		lines, err = trail.NewReader(file, strings.NewReader("")), nil // nothing was recorded
	}
	if err != nil {
		return fmt.Errorf("the report: %w", err)
	}
	defer lines.Close()
	if err := auditcmd.WriteReport([]auditreport.Trail{{Lines: lines}}, auditreport.Options{Since: r.since}, time.Now(), r.file, nil, r.write); err != nil {
		return fmt.Errorf("the report: %w", err)
	}
	return nil
}

// telling checks what the flags say of what is told of a run.
func (f *runFlags) telling() (*runReport, error) {
	if !slices.Contains(statuses, f.status) {
		return nil, cli.UsageErrorf("--status %s: %s is wanted", humanize.Printable(f.status), cli.OneOf(statuses))
	}
	if f.quiet {
		f.status = statusNever
	}
	if err := auditcmd.NotEmpty(f.Flags, "report"); err != nil {
		return nil, err
	}
	return newRunReport(f.report)
}

// tell says what happened behind argv, which ended as end says, and writes the report
// of it. Neither changes the exit status, which is the command's.
func (f *runFlags) tell(w io.Writer, argv []string, end childEnd, s audit.Summary, auditFile string, said *runReport) {
	if end.brokenOff && !f.quiet && cli.IsTerminal(w) {
		fmt.Fprintln(w) // where the terminal has shown ^C, a line is begun
	}
	switch {
	case f.quiet:
	case s.Allowed+s.Blocked+s.ClientLeft > 0:
		printSummary(w, s, auditFile)
	default:
		fmt.Fprintln(w, "robotsproxy: no request came through the proxy")
		if !end.brokenOff { // else it may not have come to that
			printLeak(w, argv)
		}
	}
	err := said.end(auditFile)
	switch {
	case err != nil:
		cli.Report(w, err)
	case said.file != "" && !f.quiet:
		fmt.Fprintf(w, "robotsproxy: report in %s\n", humanize.Printable(said.file))
	}
}
