package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/filestore"
	"robotsproxy/cmd/internal/pacefile"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/pace"
)

// StateFile is the name of the file in the state directory that a running serve locks.
const StateFile = "state.db"

// paceFileName is the name of the file in the state directory that all processes share, see package pacefile.
const paceFileName = "pace"

// filesName is the name of the directory in the state directory that has the files that runs share, see package filestore.
const filesName = "robots"

// saveInterval bounds how much of the pace's state a crash loses.
const saveInterval = time.Second

// openStore opens the state that is kept between processes. It returns an error if another process has
// it open.
func openStore(cfg config.Config, log *slog.Logger) (*bolt.Store, error) {
	state, err := cli.StateDir(cfg)
	if err != nil {
		return nil, err
	}
	store, err := bolt.Open(bolt.Options{File: filepath.Join(state, StateFile), Log: log})
	if errors.Is(err, bolt.ErrInUse) {
		return nil, fmt.Errorf("state directory %s: %w: stop it, or choose another directory with --state or state_dir", state, err)
	}
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", state, err)
	}
	return store, nil
}

// openPace makes the pacer. It shares the pace with the other replicas or, without any, with the processes of this
// machine that have the same state directory. A file system without locks shares nothing.
func (d *Daemon) openPace(state string) (err error) {
	if d.fleet != nil {
		d.Pacer = newPacer(d.store, d.fleet)
		return nil
	}
	d.paceFile, err = pacefile.Open(filepath.Join(state, paceFileName), d.log)
	switch {
	case err == nil:
		d.Pacer = newPacer(d.store, d.paceFile)
	case errors.Is(err, errors.ErrUnsupported):
		d.log.Warn("files cannot be locked here, other processes do not share the pace", "error", err)
		d.Pacer, err = newPacer(d.store, nil), nil
	}
	return err
}

// newPacer returns a pacer that continues from the state in store and shares the pace with others. Either may be nil.
func newPacer(store *bolt.Store, shared pace.Store) *pace.Pacer {
	o := pace.Options{Store: shared}
	if store == nil {
		return pace.New(o)
	}
	o.Since = store.Since()
	p := pace.New(o)
	p.Restore(store.Clocks())
	return p
}

// openFileStores sets where robots.txt and tdmrep.json files are stored beside memory. With share, the processes of this
// machine share them in the directory state, unless a fleet shares them by its store.
func (d *Daemon) openFileStores(state string, share bool) {
	if share && d.fleet == nil {
		d.files = filestore.New(filepath.Join(state, filesName), d.log)
	}
	switch {
	case d.store != nil:
		d.robotsStore, d.tdmrepStore = d.store, d.store.TDMRep()
	case d.files != nil:
		d.robotsStore, d.tdmrepStore = d.files.Of(trail.KindRobots), d.files.Of(trail.KindTDMRep)
	}
	if d.fleet != nil {
		d.robotsStore, d.tdmrepStore = d.fleet.Robots(d.robotsStore), d.fleet.TDMRep(d.tdmrepStore)
	}
}

// saveState saves the pacer's state that has changed, the end of the audit, quotas and stops, until ctx ends. Fetches may
// still be sent then: close saves all of the state.
func (d *Daemon) saveState(ctx context.Context) error {
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	var since time.Time
	for {
		select {
		case <-tick.C:
			now := time.Now()
			d.store.SaveClocks(d.Pacer.Clocks(now, since))
			since = now
			d.saveAuditEnd()
			d.saveUses()
			// It tries again.
			_ = d.saveStops()
		case <-ctx.Done():
			return nil
		}
	}
}

// saveAuditEnd saves the end of the audit that the disk has, if it has changed. Any number of goroutines may call it.
func (d *Daemon) saveAuditEnd() {
	if d.store == nil {
		return
	}
	d.savedEnd.Lock()
	defer d.savedEnd.Unlock()
	found := d.evidence.OnDisk()
	end := bolt.AuditEnd{File: auditName(d.auditFile, d.auditDir), Seq: found.Seq, Hash: found.Hash, Open: found.Open}
	// With SyncNone only the name is known. It is saved, but not in place of an end of the same audit.
	if unknown := found == (audit.End{}); end == d.savedEnd.AuditEnd || unknown && isAudit(d.savedEnd.AuditEnd, d.auditFile, d.auditDir) {
		return
	}
	d.savedEnd.AuditEnd = end
	d.store.SaveAuditEnd(end)
}

// usedBefore returns what an earlier process has counted of quotas and budgets, as far as it is known.
func (d *Daemon) usedBefore() (all []policy.MeterUse) {
	if d.store == nil {
		return nil
	}
	var unknown error
	for _, text := range d.store.Uses() {
		var use policy.MeterUse
		if err := json.Unmarshal(text, &use); err != nil {
			unknown = err
			continue
		}
		all = append(all, use)
	}
	if unknown != nil {
		d.log.Warn("used quotas and budgets of the last process partly unknown", "error", unknown)
	}
	return all
}

// saveUses saves what was used of quotas and budgets, as far as it has changed. It is for one goroutine.
func (d *Daemon) saveUses() {
	for _, use := range d.Active.Load().rules.Engine.ChangedUses() {
		// Its numbers and names can always be encoded.
		text, _ := json.Marshal(use)
		d.store.SaveUse(use.Name, text, use.Until())
	}
}

// begin records that requests are under way, and saves the end of the audit, so that the lines cannot be cut off
// unnoticed.
func (d *Daemon) begin(all ...*audit.Begun) error {
	err := d.evidence.Begin(all...)
	d.saveAuditEnd()
	return err
}

// CompareAuditEnd says how the end of the audit in a file differs from what a proxy that is stopped has written, as
// the next start would find it; "": it does not, or that is not known. state is the proxy's state directory, in
// which nothing is changed.
func CompareAuditEnd(state, file string) (string, error) {
	end, err := bolt.ReadAuditEnd(filepath.Join(state, StateFile))
	if err != nil || !isAudit(end, file, state) {
		// The proxy runs, or writes another audit. A damaged state.db is replaced at the next start.
		return "", nil
	}
	found, err := audit.CompareEnd(file, trail.Link{Seq: end.Seq, Hash: end.Hash})
	if found != "" {
		found = auditDiffers + found
	}
	return found, err
}

// knownEnd returns the end of the audit when the previous process ended; the zero End if that is
// unknown, or if that process wrote another audit.
func (d *Daemon) knownEnd(file string) audit.End {
	if d.store == nil {
		return audit.End{}
	}
	end := d.store.AuditEnd()
	if !isAudit(end, file, d.auditDir) {
		return audit.End{}
	}
	return audit.End{Link: trail.Link{Seq: end.Seq, Hash: end.Hash}, Open: end.Open}
}

// mayContinue reports whether the previous process may have written the audit in a file.
func (d *Daemon) mayContinue(file string) bool {
	if d.store == nil {
		return true
	}
	end := d.store.AuditEnd()
	return end.File == "" || isAudit(end, file, d.auditDir)
}

// isAudit reports whether end is that of the audit in a file.
func isAudit(end bolt.AuditEnd, file, state string) bool {
	// Earlier versions stored the absolute path.
	return end.File == auditName(file, state) || end.File == AbsolutePath(file)
}

// auditName returns the path of an audit relative to the state directory if the audit is in it, so that
// the audit keeps its name if the directory is moved or reached by another path; else the absolute path.
func auditName(file, state string) string {
	file = AbsolutePath(file)
	if name, err := filepath.Rel(AbsolutePath(state), file); err == nil && filepath.IsLocal(name) {
		return name
	}
	return file
}

// auditDiffers begins a warning about the end of the audit.
const auditDiffers = "the audit differs from what the proxy wrote: "
