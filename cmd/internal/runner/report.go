package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"robotsproxy/cmd/internal/auditcmd"
	"robotsproxy/cmd/internal/cli"
	auditreport "robotsproxy/policy/audit/report"
	"robotsproxy/policy/audit/trail"
)

// A runReport is the report file of a run. The zero runReport writes none.
type runReport struct {
	file  string
	write func(io.Writer, *auditreport.Report) error

	// since is the start of the run if the audit file existed before, else zero.
	since time.Time
}

// newRunReport checks before the run that the report can be written.
func newRunReport(file string) (*runReport, error) {
	if file == "" {
		return &runReport{}, nil
	}
	format, err := auditcmd.FormatOf(file)
	if err != nil {
		return nil, cli.UsageErrorf("--report: %w", err)
	}
	file, err = filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	if !auditcmd.IsDir(filepath.Dir(file)) {
		return nil, fmt.Errorf("--report: directory %s does not exist", filepath.Dir(file))
	}
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("--report: %s is not a regular file", file)
	}
	write, err := auditcmd.ReportWriter(format, auditcmd.TopOfText, auditcmd.TopOfPage)
	return &runReport{file: file, write: write}, err
}

// begin notes whether the audit file has records of earlier runs.
func (r *runReport) begin(file string, now time.Time) {
	if _, err := os.Stat(file); err == nil {
		r.since = now
	}
}

// end writes the report from the audit file, which must be closed.
func (r *runReport) end(file string) error {
	if r.file == "" {
		return nil
	}
	lines, err := trail.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		// There is no file if nothing was recorded.
		lines, err = trail.NewReader(file, strings.NewReader("")), nil
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer lines.Close()
	trails, options := []auditreport.Trail{{Lines: lines}}, auditreport.Options{Since: r.since}
	if err := auditcmd.WriteReport(trails, options, time.Now(), r.file, nil, r.write); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
