package prom

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/proxy/archive"
)

// newAuditCollector exports how the audit trail is written.
func newAuditCollector(stats func() audit.Stats) prometheus.Collector {
	c := &statsCollector[audit.Stats]{stats: stats}
	c.gauge("audit_healthy", "1 if the audit and the robots.txt files that it is based on can be written, otherwise 0.",
		func(s audit.Stats) float64 { return boolValue(s.Err == nil) })
	c.gauge("audit_lag_seconds", "Age of the oldest line that is not in the file yet; 0 if there is none.",
		func(s audit.Stats) float64 { return s.Lag.Seconds() })
	c.gauge("audit_unwritten_lines", "Lines that are not in the file yet.",
		func(s audit.Stats) float64 { return float64(s.Waiting) })
	c.gauge("audit_unsynced_lines", "Lines in the file that are not synced to the disk yet; always 0 with audit.sync: none.",
		func(s audit.Stats) float64 { return float64(s.Unsynced) })
	c.counter("audit_lines_total", "Lines written.", func(s audit.Stats) uint64 { return s.Lines })
	c.counter("audit_bytes_total", "Bytes of the lines written.", func(s audit.Stats) uint64 { return s.Bytes })
	c.counter("audit_errors_total", "Failed writes and syncs of the file, including retries.",
		func(s audit.Stats) uint64 { return s.Failures })
	c.counter("audit_lost_records_total", "Records lost, because they could be neither written nor held in memory until a later write.",
		func(s audit.Stats) uint64 { return s.Lost })
	c.counter("audit_counted_refusals_total", "Refusals without a record of their own, because a client had more than 100 in a second, or all more than 1,000.",
		func(s audit.Stats) uint64 { return s.Counted })
	counters(c, "audit_removed_lines_total", "Lines deleted with their file, by the option that caused it. All options but audit.max_age delete records before that age.", "option",
		func(s audit.Stats) map[string]uint64 { return s.Removed })
	c.gauge("audit_oldest_timestamp_seconds", "Time of the oldest record, in seconds since 1970; 0 if there is none.",
		func(s audit.Stats) float64 { return timestamp(s.Space.Oldest) })
	c.gauge("audit_disk_bytes", "Disk space of the audit's files in bytes.", func(s audit.Stats) float64 { return float64(s.Space.Bytes) })
	c.gauge("audit_space_left_seconds", "Time until the disk is full, or records are deleted before audit.max_age, at the present rate; +Inf if neither happens; 0 while no rate is known and the disk is nearly full.",
		func(s audit.Stats) float64 { return secondsLeft(s.Space.UsedUp) })
	c.counter("audit_rotations_total", "Audit files closed because they were full.",
		func(s audit.Stats) uint64 { return s.Rotations })
	return c
}

// newArchiveCollector exports how the archive is written.
func newArchiveCollector(stats func() archive.Stats) prometheus.Collector {
	c := &statsCollector[archive.Stats]{stats: stats}
	c.gauge("archive_healthy", "1 if the archive can be written, or nothing is archived, otherwise 0.",
		func(s archive.Stats) float64 { return boolValue(s.Err == nil) })
	c.counter("archive_records_total", "WARC records of exchanges written.", func(s archive.Stats) uint64 { return s.Records })
	c.counter("archive_revisits_total", "WARC records of responses whose payload the archive had already.", func(s archive.Stats) uint64 { return s.Revisits })
	c.counter("archive_truncated_total", "WARC records without the end of their body.", func(s archive.Stats) uint64 { return s.Truncated })
	c.counter("archive_errors_total", "Failed writes and syncs of the archive, including retries.", func(s archive.Stats) uint64 { return s.Failures })
	c.counter("archive_lost_responses_total", "Responses that could not be archived.", func(s archive.Stats) uint64 { return s.Left })
	c.gauge("archive_disk_bytes", "Disk space of the WARC files in bytes.", func(s archive.Stats) float64 { return float64(s.Space.Bytes) })
	c.gauge("archive_incomplete_bytes", "Disk space of bodies whose transfer has not ended, in bytes.", func(s archive.Stats) float64 { return float64(s.Spooled) })
	return c
}

// secondsLeft returns the time until t in seconds, +Inf for the zero time.
func secondsLeft(t time.Time) float64 {
	if t.IsZero() {
		return math.Inf(1)
	}
	return max(0, time.Until(t).Seconds())
}

// newSnapshotsCollector exports how the robots.txt files that decisions are based on are
// stored.
func newSnapshotsCollector(stats func() snapshot.Stats) prometheus.Collector {
	c := &statsCollector[snapshot.Stats]{stats: stats}
	c.gauge("snapshots_bytes", "Disk space of the robots.txt files stored for the audit and of their index, in bytes.",
		func(s snapshot.Stats) float64 { return float64(s.Bytes) })
	c.gauge("snapshots_max_bytes", "Maximum disk space of these files in bytes (audit.snapshot_max_size).",
		func(s snapshot.Stats) float64 { return float64(s.MaxBytes) })
	c.counter("snapshots_kept_total", "robots.txt responses stored for the audit. A response in use is stored again once a day.",
		func(s snapshot.Stats) uint64 { return s.Saved })
	counters(c, "snapshots_errors_total", "Failures to store robots.txt files for the audit: a write (keep), a write for lack of space (full), a line of the index for lack of space (index), a sync (sync), the removal of old files (prune).", "operation",
		func(s snapshot.Stats) map[string]uint64 {
			return map[string]uint64{"keep": s.SaveFailed, "full": s.Refused, "index": s.Unindexed, "sync": s.SyncFailed, "prune": s.PruneFailed}
		})
	return c
}

// newStateCollector exports how state.db is stored.
func newStateCollector(stats func() bolt.Stats) prometheus.Collector {
	c := &statsCollector[bolt.Stats]{stats: stats}
	c.gauge("state_bytes", "Size of state.db in bytes after the last write.",
		func(s bolt.Stats) float64 { return float64(s.Bytes) })
	c.gauge("state_pending_bytes", "Bytes of robots.txt files that are not in state.db yet.",
		func(s bolt.Stats) float64 { return float64(s.Pending) })
	c.counter("state_errors_total", "Failures to open, read or write state.db.",
		func(s bolt.Stats) uint64 { return s.Failures })
	c.counter("state_damaged_total", "Times that state.db was damaged and renamed.",
		func(s bolt.Stats) uint64 { return s.Damaged })
	c.counter("state_lost_entries_total", "robots.txt files dropped before they were in state.db, because it could not be written and the memory for them was full.",
		func(s bolt.Stats) uint64 { return s.Lost })
	return c
}

// newReadyCollector exports whether requests are accepted.
func newReadyCollector(ready func() error) prometheus.Collector {
	c := &statsCollector[error]{stats: ready}
	c.gauge("ready", "1 if the proxy accepts requests, as /readyz reports, otherwise 0.", func(why error) float64 { return boolValue(why == nil) })
	return c
}

// newModeCollector exports whether decisions are enforced.
func newModeCollector(monitor func() bool) prometheus.Collector {
	c := &statsCollector[bool]{stats: monitor}
	c.gauge("monitor_mode", "1 in monitor mode, in which decisions are only recorded; 0 if they are enforced.", boolValue)
	return c
}

// reloads are the results of Options.Reloads.
type reloads struct {
	ok, failed uint64
	last       time.Time
	err        error
}

// newReloadsCollector exports how often the configuration was reloaded, and with what result.
func newReloadsCollector(stats func() (ok, failed uint64, last time.Time, err error)) prometheus.Collector {
	c := &statsCollector[reloads]{stats: func() (r reloads) {
		r.ok, r.failed, r.last, r.err = stats()
		return r
	}}
	counters(c, "reloads_total", "Reloads of the configuration: ok, or failed, after which the previous configuration stays active.", "outcome",
		func(r reloads) map[string]uint64 { return map[string]uint64{"ok": r.ok, "failed": r.failed} })
	c.gauge("reload_last_successful", "1 if the last reload succeeded, 0 if it was rejected.",
		func(r reloads) float64 { return boolValue(r.err == nil) })
	c.gauge("reload_last_success_timestamp_seconds", "Time of the last successful reload, in seconds since 1970; 0 if there was none since the start.",
		func(r reloads) float64 { return timestamp(r.last) })
	return c
}
