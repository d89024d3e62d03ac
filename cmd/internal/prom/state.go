package prom

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/cmd/internal/notary"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/stops"
	"robotsproxy/proxy/archive"
)

// newAuditCollector exports how the audit trail is written.
func newAuditCollector(stats func() audit.Stats) prometheus.Collector {
	return statsCollector[audit.Stats]{stats, func(s audit.Stats) []metric {
		return []metric{
			gauge("audit_healthy", "1 if the audit and the robots.txt files that it is based on can be written, otherwise 0.",
				boolValue(s.Err == nil)),
			gauge("audit_lag_seconds", "Age of the oldest line that is not in the file yet; 0 if there is none.", s.Lag.Seconds()),
			gauge("audit_unwritten_lines", "Lines that are not in the file yet.", s.Waiting),
			gauge("audit_unsynced_lines", "Lines in the file that are not synced to the disk yet; always 0 with audit.sync: none.",
				s.Unsynced),
			counter("audit_lines_total", "Lines written.", s.Lines),
			counter("audit_bytes_total", "Bytes of the lines written.", s.Bytes),
			counter("audit_errors_total", "Failed writes and syncs of the file, including retries.", s.Failures),
			counter("audit_lost_records_total", "Records lost, because they could be neither written nor held in memory until a later "+
				"write.", s.Lost),
			counter("audit_counted_refusals_total", "Refusals without a record of their own, because a client had more than 100 in a "+
				"second, or all more than 1,000.", s.Counted),
			counters("audit_removed_lines_total", "Lines deleted with their file, by the option that caused it. All options but "+
				"audit.max_age delete records before that age.", "option", s.Removed),
			gauge("audit_oldest_timestamp_seconds", "Time of the oldest record, in seconds since 1970; 0 if there is none.",
				timestamp(s.Space.Oldest)),
			gauge("audit_disk_bytes", "Disk space of the audit's files in bytes.", s.Space.Bytes),
			gauge("audit_space_left_seconds", "Time until the disk is full, or records are deleted before audit.max_age, at the present "+
				"rate; +Inf if neither happens; 0 while no rate is known and the disk is nearly full.", secondsLeft(s.Space.UsedUp)),
			counter("audit_rotations_total", "Audit files closed because they were full.", s.Rotations),
		}
	}}
}

// newCheckpointsCollector exports when checkpoints of the audit were written.
func newCheckpointsCollector(places func() []notary.Place) prometheus.Collector {
	return statsCollector[[]notary.Place]{places, func(all []notary.Place) []metric {
		var newest, overdue []sample
		for _, p := range all {
			to := []string{p.Name}
			newest = append(newest, sample{to, timestamp(p.Newest)})
			overdue = append(overdue, sample{to, boolValue(p.Err != nil)})
		}
		return []metric{
			newMetric(prometheus.GaugeValue, "audit_checkpoint_timestamp_seconds", "Time of the newest checkpoint of the audit in each "+
				"place, in seconds since 1970; 0 if none is known.", []string{"to"}, newest...),
			newMetric(prometheus.GaugeValue, "audit_checkpoint_overdue", "1 if a checkpoint of the audit that is due could not be "+
				"written to the place, otherwise 0.", []string{"to"}, overdue...),
		}
	}}
}

// newArchiveCollector exports how the archive is written.
func newArchiveCollector(stats func() archive.Stats) prometheus.Collector {
	return statsCollector[archive.Stats]{stats, func(s archive.Stats) []metric {
		return []metric{
			gauge("archive_healthy", "1 if the archive can be written, or nothing is archived, otherwise 0.", boolValue(s.Err == nil)),
			counter("archive_records_total", "WARC records of exchanges written.", s.Records),
			counter("archive_revisits_total", "WARC records of responses whose payload the archive had already.", s.Revisits),
			counter("archive_truncated_total", "WARC records without the end of their body.", s.Truncated),
			counter("archive_errors_total", "Failed writes and syncs of the archive, including retries.", s.Failures),
			counter("archive_lost_responses_total", "Responses that could not be archived.", s.Left),
			gauge("archive_disk_bytes", "Disk space of the WARC files in bytes.", s.Space.Bytes),
			gauge("archive_incomplete_bytes", "Disk space of bodies whose transfer has not ended, in bytes.", s.Spooled),
		}
	}}
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
	return statsCollector[snapshot.Stats]{stats, func(s snapshot.Stats) []metric {
		return []metric{
			gauge("snapshots_bytes", "Disk space of the robots.txt files stored for the audit and of their index, in bytes.", s.Bytes),
			gauge("snapshots_max_bytes", "Maximum disk space of these files in bytes (audit.snapshot_max_size).", s.MaxBytes),
			counter("snapshots_kept_total", "robots.txt responses stored for the audit. A response in use is stored again once a day.",
				s.Saved),
			counters("snapshots_errors_total", "Failures to store robots.txt files for the audit: a write (keep), a write for lack of "+
				"space (full), a line of the index for lack of space (index), a sync (sync), the removal of old files (prune).",
				"operation", map[string]uint64{
					"keep": s.SaveFailed, "full": s.Refused, "index": s.Unindexed, "sync": s.SyncFailed, "prune": s.PruneFailed,
				}),
		}
	}}
}

// newStateCollector exports how state.db is stored.
func newStateCollector(stats func() bolt.Stats) prometheus.Collector {
	return statsCollector[bolt.Stats]{stats, func(s bolt.Stats) []metric {
		return []metric{
			gauge("state_bytes", "Size of state.db in bytes after the last write.", s.Bytes),
			gauge("state_pending_bytes", "Bytes of robots.txt files that are not in state.db yet.", s.Pending),
			counter("state_errors_total", "Failures to open, read or write state.db.", s.Failures),
			counter("state_damaged_total", "Times that state.db was damaged and renamed.", s.Damaged),
			counter("state_lost_entries_total", "robots.txt files dropped before they were in state.db, because it could not be written "+
				"and the memory for them was full.", s.Lost),
		}
	}}
}

// newReadyCollector exports whether requests are accepted.
func newReadyCollector(ready func() error) prometheus.Collector {
	return statsCollector[error]{ready, func(why error) []metric {
		return []metric{gauge("ready", "1 if the proxy accepts requests, as /readyz reports, otherwise 0.", boolValue(why == nil))}
	}}
}

// newModeCollector exports whether decisions are enforced.
func newModeCollector(monitor func() bool) prometheus.Collector {
	return statsCollector[bool]{monitor, func(on bool) []metric {
		return []metric{gauge("monitor_mode", "1 in monitor mode, in which decisions are only recorded; 0 if they are enforced.",
			boolValue(on))}
	}}
}

// Exceptions are the entries of hosts with an end (until).
type Exceptions struct {
	// Expired is how many have expired.
	Expired int

	// Next is when the next one expires; zero: none will.
	Next time.Time
}

// newExceptionsCollector exports when entries of hosts expire.
func newExceptionsCollector(all func() Exceptions) prometheus.Collector {
	return statsCollector[Exceptions]{all, func(e Exceptions) []metric {
		return []metric{
			gauge("hosts_expired_entries", "Entries of hosts that have expired (until), and so do not apply any more.", e.Expired),
			gauge("hosts_next_expiry_timestamp_seconds", "When the next entry of hosts expires, in seconds since 1970; 0: none will.",
				timestamp(e.Next)),
		}
	}}
}

// newStopsCollector exports how many hosts are stopped.
func newStopsCollector(all func() []stops.Stop) prometheus.Collector {
	return statsCollector[[]stops.Stop]{all, func(all []stops.Stop) []metric {
		everything, counts := false, map[stops.Kind]int{}
		for _, s := range all {
			if s.Host == "" && s.Client == "" {
				everything = true
			} else {
				counts[s.Kind]++
			}
		}
		return []metric{
			newMetric(prometheus.GaugeValue, "stops", "Hosts to which nothing is sent now, or nothing for one client.", []string{"kind"},
				sample{[]string{string(stops.Paused)}, float64(counts[stops.Paused])},
				sample{[]string{string(stops.CoolDown)}, float64(counts[stops.CoolDown])}),
			gauge("all_paused", "1 while an operator has paused all hosts.", boolValue(everything)),
		}
	}}
}

// reloads are the results of Options.Reloads.
type reloads struct {
	ok, failed uint64
	last       time.Time
	err        error
}

// newReloadsCollector exports how often the configuration was reloaded, and with what result.
func newReloadsCollector(stats func() (ok, failed uint64, last time.Time, err error)) prometheus.Collector {
	all := func() (r reloads) {
		r.ok, r.failed, r.last, r.err = stats()
		return r
	}
	return statsCollector[reloads]{all, func(r reloads) []metric {
		return []metric{
			counters("reloads_total", "Reloads of the configuration: ok, or failed, after which the previous configuration stays active.",
				"outcome", map[string]uint64{"ok": r.ok, "failed": r.failed}),
			gauge("reload_last_successful", "1 if the last reload succeeded, 0 if it was rejected.", boolValue(r.err == nil)),
			gauge("reload_last_success_timestamp_seconds", "Time of the last successful reload, in seconds since 1970; 0 if there was "+
				"none since the start.", timestamp(r.last)),
		}
	}}
}
