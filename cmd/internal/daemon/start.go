package daemon

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/prom"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/memory"
	"robotsproxy/proxy"
	"robotsproxy/proxy/archive"
)

// New listens and creates all packages. others also receive the records. After an error New closes
// what it has created.
func New(cfg config.Config, own Resources, log *slog.Logger, others ...audit.Sink) (_ *Daemon, err error) {
	d := &Daemon{
		log: log, store: own.store, listener: own.Listener, transparent: own.Transparent, nameOf: own.NameOf,
		elsewhere: own.Listener != nil, fetchTimer: prom.NewStopwatch(), started: time.Now(), labels: own.Labels,
		memory: memory.New(memory.Options{}),
	}
	d.configSum, _ = fileSum(own.ConfigFile)
	defer func() {
		if err != nil {
			// New returns the first error.
			d.close()
		}
	}()
	state, err := checkStart(cfg, log)
	if err != nil {
		return nil, err
	}
	if d.fleet, err = openFleet(cfg, log); err != nil {
		return nil, err
	}
	d.restoreStops()
	if err := d.openPace(state); err != nil {
		return nil, err
	}
	d.openFileStores(state, own.ShareFiles)
	d.stateDir, d.auditDir = state, cmp.Or(own.Dir, state)
	// The listeners come first, since the egress client must not connect to their ports.
	if err := d.listen(cfg); err != nil {
		return nil, err
	}
	if err := d.openFeed(); err != nil {
		return nil, err
	}
	if err := d.openArchive(cfg); err != nil {
		return nil, fmt.Errorf("archive.dir: %w", err)
	}
	first, err := d.newGeneration(cfg, nil)
	if err != nil {
		return nil, err
	}
	d.Active.Store(first)
	d.boundMemory(first.memory)
	if err := d.openAudit(first); err != nil {
		return nil, err
	}
	warning := &unusedWarning{log: log, unused: func() string { return UnusedProxy(d.Active.Load().Cfg, os.Getenv) }}
	sinks, err := d.sinks(append([]audit.Sink{warning}, others...))
	if err != nil {
		return nil, err
	}
	keep, begin := d.recorders()
	d.handler, err = proxy.New(proxy.Options{
		Rules: first.rules, Pacer: d.Pacer, Log: log, Archive: d.archive, Memory: d.memory,
		Audit: audit.Fanout(sinks...), Keep: keep, Begin: begin, Ready: d.refusal,
	})
	if err != nil {
		return nil, err
	}
	return d, d.openAdmin()
}

// checkStart logs settings that have no effect, and returns the state directory.
func checkStart(cfg config.Config, log *slog.Logger) (state string, err error) {
	if err := checkIdentity(cfg); err != nil {
		return "", err
	}
	warnExpired(cfg, time.Time{}, time.Now(), log)
	warnBare(log)
	logNoEnvironment(cfg, log)
	return cli.StateDir(cfg)
}

// openAudit opens the snapshots and the audit.
func (d *Daemon) openAudit(f *generation) (err error) {
	if d.snapshots, err = snapshot.Open(f.snapshots); err != nil {
		return err
	}
	o := f.audit
	o.Snapshots = d.snapshots
	d.auditFile = o.File
	o.Known = d.knownEnd(o.File)
	o.Latest = d.latestCheckpoints(f.Cfg, o.File)
	if d.evidence, err = audit.Open(o); err != nil || isLeftOut("audit") {
		return err
	}
	d.notary = d.newNotary(f.Cfg)
	// The audit keeps the error, and d.healthy returns it.
	_ = d.evidence.Start(d.process(f))
	if d.store != nil {
		d.savedEnd.AuditEnd = d.store.AuditEnd()
		d.saveAuditEnd()
		// The end of the audit is on the disk before anything is answered.
		d.store.Commit()
	}
	return nil
}

// openFeed makes the live feed of requests, if there is an admin listener.
func (d *Daemon) openFeed() (err error) {
	if d.adminListener == nil {
		return nil
	}
	d.feed, err = live.New(live.Options{Waiting: func() int { return d.Pacer.Stats().Waiting }})
	return err
}

// PayloadsName is the name of the index in the directory of the archive.
const PayloadsName = "payloads.db"

// openArchive opens the archive, if there is one.
func (d *Daemon) openArchive(cfg config.Config) error {
	if cfg.Archive.Dir == "" {
		return nil
	}
	how, err := d.auditOptions(cfg)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.Archive.Dir, 0o700); err != nil {
		return err
	}
	if d.payloads, err = bolt.OpenPayloads(filepath.Join(cfg.Archive.Dir, PayloadsName), d.log); err != nil {
		return err
	}
	o := d.archiveOptions(cfg, &how)
	o.Index = d.payloads
	d.archive, err = archive.Open(o)
	return err
}

// sinks returns the receivers of each record: the audit first, then others, then metrics and feed.
func (d *Daemon) sinks(others []audit.Sink) (all []audit.Sink, err error) {
	if !isLeftOut("audit") {
		all = append(all, d.evidence)
	}
	all = append(all, others...)
	if d.adminListener == nil && d.monitorListener == nil {
		return all, nil
	}
	if d.metrics, err = d.newMetrics(); err != nil || isLeftOut("metrics") {
		return all, err
	}
	all = append(all, d.metrics)
	if d.feed != nil {
		all = append(all, d.feed)
	}
	return all, nil
}

// recorders returns the function that stores the robots.txt files that decisions are based on, and the function that
// records requests that are under way.
func (d *Daemon) recorders() (keep func(*audit.Record) error, begin func(...*audit.Begun) error) {
	if isLeftOut("audit") {
		return func(*audit.Record) error { return nil }, func(...*audit.Begun) error { return nil }
	}
	return d.evidence.SaveSnapshot, d.begin
}
