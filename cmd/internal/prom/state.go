package prom

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
)

// newAuditCollector exports how the audit trail is written.
func newAuditCollector(stats func() audit.Stats) prometheus.Collector {
	c := &statsCollector[audit.Stats]{stats: stats}
	c.gauge("audit_healthy", "1 where the audit can be written, with the robots.txt files that it rests on; 0 where it cannot.",
		func(s audit.Stats) float64 { return boolValue(s.Err == nil) })
	c.gauge("audit_lag_seconds", "How old the oldest line is that is not in the file yet; 0 where all are.",
		func(s audit.Stats) float64 { return s.Lag.Seconds() })
	c.gauge("audit_unwritten_lines", "Lines that are not in the file yet.",
		func(s audit.Stats) float64 { return float64(s.Waiting) })
	c.gauge("audit_unsynced_lines", "Lines in the file that the disk has not been waited for yet; 0 under audit.sync: none, where it never is.",
		func(s audit.Stats) float64 { return float64(s.Unsynced) })
	c.counter("audit_lines_total", "Lines written.", func(s audit.Stats) uint64 { return s.Lines })
	c.counter("audit_bytes_total", "Octets of the lines written.", func(s audit.Stats) uint64 { return s.Bytes })
	c.counter("audit_errors_total", "Times that the file could not be written, or the disk not be waited for; tries again included.",
		func(s audit.Stats) uint64 { return s.Failures })
	c.counter("audit_lost_records_total", "Records that could neither be written nor kept until they could be.",
		func(s audit.Stats) uint64 { return s.Lost })
	c.counter("audit_counted_refusals_total", "Refusals that were only counted and have no record, because one client had more than 100 in a second.",
		func(s audit.Stats) uint64 { return s.Counted })
	counters(c, "audit_removed_lines_total", "Lines deleted with their file, by the option that decided it. All but audit.max_age delete records before they are as old as that.", "option",
		func(s audit.Stats) map[string]uint64 { return s.Removed })
	c.gauge("audit_oldest_timestamp_seconds", "When the oldest record was written, in seconds since 1970; 0 if there is none.",
		func(s audit.Stats) float64 { return timestamp(s.Space.Oldest) })
	c.gauge("audit_disk_bytes", "Bytes on the disk of the audit's files.", func(s audit.Stats) float64 { return float64(s.Space.Bytes) })
	c.gauge("audit_space_left_seconds", "How long the space for the audit lasts at the present rate, until the disk is full or records are deleted before audit.max_age; +Inf if neither happens.",
		func(s audit.Stats) float64 { return secondsLeft(s.Space.UsedUp) })
	c.counter("audit_rotations_total", "Files of the audit set aside because they were full.",
		func(s audit.Stats) uint64 { return s.Rotations })
	return c
}

// secondsLeft returns the time until t in seconds, +Inf for the zero time.
func secondsLeft(t time.Time) float64 {
	if t.IsZero() {
		return math.Inf(1)
	}
	return max(0, time.Until(t).Seconds())
}

// newSnapshotsCollector exports how the robots.txt files that decisions rest on are stored.
func newSnapshotsCollector(stats func() snapshot.Stats) prometheus.Collector {
	c := &statsCollector[snapshot.Stats]{stats: stats}
	c.gauge("snapshots_bytes", "Bytes on the disk of the robots.txt files kept for the audit, and of their index.",
		func(s snapshot.Stats) float64 { return float64(s.Bytes) })
	c.gauge("snapshots_max_bytes", "Bytes that these files may take on the disk (audit.snapshot_max_size).",
		func(s snapshot.Stats) float64 { return float64(s.MaxBytes) })
	c.counter("snapshots_kept_total", "Answers for robots.txt kept for the audit; one in use is kept once a day.",
		func(s snapshot.Stats) uint64 { return s.Saved })
	counters(c, "snapshots_errors_total", "What failed of keeping robots.txt files for the audit: to write a file (keep), to write a file for lack of space (full), to add its line to the index for lack of space (index), to wait for the disk (sync), to remove old files (prune).", "operation",
		func(s snapshot.Stats) map[string]uint64 {
			return map[string]uint64{"keep": s.SaveFailed, "full": s.Refused, "index": s.Unindexed, "sync": s.SyncFailed, "prune": s.PruneFailed}
		})
	return c
}

// newStateCollector exports how state.db is stored.
func newStateCollector(stats func() bolt.Stats) prometheus.Collector {
	c := &statsCollector[bolt.Stats]{stats: stats}
	c.gauge("state_bytes", "Octets of state.db when it was last written to.",
		func(s bolt.Stats) float64 { return float64(s.Bytes) })
	c.gauge("state_pending_bytes", "Octets of robots.txt files that are not in state.db yet.",
		func(s bolt.Stats) float64 { return float64(s.Pending) })
	c.counter("state_errors_total", "Times that state.db could not be opened, read or written.",
		func(s bolt.Stats) uint64 { return s.Failures })
	c.counter("state_damaged_total", "Times that state.db was damaged, and set aside.",
		func(s bolt.Stats) uint64 { return s.Damaged })
	c.counter("state_lost_entries_total", "Robots.txt files that state.db will not have: it could not be written, and there was no more room for them.",
		func(s bolt.Stats) uint64 { return s.Lost })
	return c
}

// newReadyCollector exports whether requests are accepted.
func newReadyCollector(ready func() error) prometheus.Collector {
	c := &statsCollector[error]{stats: ready}
	c.gauge("ready", "1 where the proxy takes requests, as /readyz says; else 0.", func(why error) float64 { return boolValue(why == nil) })
	return c
}

// newModeCollector exports whether decisions are enforced.
func newModeCollector(monitor func() bool) prometheus.Collector {
	c := &statsCollector[bool]{stats: monitor}
	c.gauge("monitor_mode", "1 while decisions are only recorded and no request is blocked or delayed (mode: monitor); 0 while they are enforced.", boolValue)
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
	counters(c, "reloads_total", "Times that the configuration was read anew: ok, or failed, which leaves the old one in force.", "outcome",
		func(r reloads) map[string]uint64 { return map[string]uint64{"ok": r.ok, "failed": r.failed} })
	c.gauge("reload_last_successful", "1 where the configuration in force is the one that was read last, 0 where that was refused.",
		func(r reloads) float64 { return boolValue(r.err == nil) })
	c.gauge("reload_last_success_timestamp_seconds", "When a configuration was last put in force anew, in seconds since 1970; 0: not since the start.",
		func(r reloads) float64 { return timestamp(r.last) })
	return c
}
