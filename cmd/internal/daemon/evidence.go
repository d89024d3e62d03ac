package daemon

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"robotsproxy/cmd/internal/admin"
	"robotsproxy/policy/audit/report"
	"robotsproxy/policy/audit/trail"
)

// reportRows is how many rows each table of a downloaded report has, as in `robotsproxy audit report`.
const reportRows = 100

// evidenceForAdmin gives the admin listener access to the audit. It returns nil if the audit is not a
// readable file.
func (d *Daemon) evidenceForAdmin() *admin.Evidence {
	if info, err := os.Stat(d.auditFile); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return &admin.Evidence{Verify: d.verifyAudit, Report: d.reportAudit, Checkpoints: d.checkpointPlaces}
}

// verifyAudit verifies the chain of the audit, and returns the number of its lines.
func (d *Daemon) verifyAudit(ctx context.Context) (lines int, err error) {
	r, err := trail.OpenContext(ctx, d.auditFile)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	found, err := trail.Verify(r, trail.VerifyOptions{})
	return found.Lines, err
}

// reportAudit writes a report of the whole audit. A fault of the chain is part of the report, and not an
// error.
func (d *Daemon) reportAudit(ctx context.Context, w io.Writer) error {
	r, err := trail.OpenContext(ctx, d.auditFile)
	if err != nil {
		return err
	}
	defer r.Close()
	b := report.New(report.Options{})
	if err := b.Read(r); err != nil {
		return fmt.Errorf("read the audit: %w", err)
	}
	version, _ := buildInfo()
	return b.Report(time.Now(), version).HTML(w, reportRows)
}
