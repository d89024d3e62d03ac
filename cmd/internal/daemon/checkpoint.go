package daemon

import (
	"cmp"
	"errors"
	"net/http"
	"os"
	"path/filepath"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/notary"
	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/trail"
)

// CheckpointSettings returns how checkpoints are made under a configuration, with the state directory state. run is the name
// of a run; "": the process is none.
func CheckpointSettings(cfg config.Config, state, run string) notary.Settings {
	c, anchor := cfg.Audit.Checkpoint, cfg.Audit.Anchor
	s := notary.Settings{
		Keys:   notary.KeyFile{Path: cmp.Or(c.Key, filepath.Join(state, notary.KeyName)), Configured: c.Key != ""},
		Origin: c.Origin, Part: run,
		Every: c.Every, Lines: uint64(c.Lines), File: c.File,
		AnchorEvery: anchor.Every, AnchorFile: anchor.File, TSA: anchor.TSA, Replicas: cfg.Store.Replicas,
	}
	if replica := replicaName(cfg.Store, os.Hostname); s.Origin == "" && replica != "" {
		s.Origin = notary.OriginOf(replica)
	}
	// An audit in another file is another one. In a run, the run's name says so.
	if name := filepath.Base(cfg.Audit.File); c.Origin == "" && run == "" && cfg.Audit.File != "" && name != cli.AuditName {
		s.Part = name
	}
	return s
}

// checkpointSettings returns how checkpoints are made under the configuration of a generation.
func (d *Daemon) checkpointSettings(cfg config.Config) notary.Settings {
	run := ""
	if d.auditDir != d.stateDir {
		run = filepath.Base(d.auditDir)
	}
	return CheckpointSettings(cfg, d.stateDir, run)
}

// hasCheckpoints reports whether the audit of a configuration is in a regular file, of which there are checkpoints.
func hasCheckpoints(cfg config.Config) bool {
	return cfg.Audit.File != "-" && !cfg.Audit.FIFO && !isLeftOut("audit")
}

// latestCheckpoints returns the newest known checkpoints of the audit in a file, which is not open yet.
func (d *Daemon) latestCheckpoints(cfg config.Config, file string) []checkpoint.Checkpoint {
	// A run begins its audit. The checkpoints may be of an audit in another place.
	if !hasCheckpoints(cfg) || d.auditDir != d.stateDir || !d.mayContinue(file) {
		return nil
	}
	// An audit that cannot be read cannot be opened either.
	first, _ := trail.FirstEntry(file)
	all, err := notary.Latest(d.checkpointSettings(cfg), d.stateDir, d.exchange(), first.Time)
	if err != nil && !first.Time.IsZero() {
		d.log.Warn("audit not compared with all checkpoints", "error", err)
	}
	return all
}

// exchange returns where replicas share checkpoints; nil: there are no others.
func (d *Daemon) exchange() notary.Exchange {
	if d.fleet == nil {
		// A nil fleet in the interface would not be nil.
		return nil
	}
	return d.fleet
}

// checkFIFO returns an error if checkpoints are to be kept of an audit in a FIFO.
func checkFIFO(cfg config.Config) error {
	if cfg.Audit.FIFO && cfg.Audit.Checkpoint.File+cfg.Audit.Anchor.File+cfg.Audit.Anchor.TSA != "" {
		return errors.New("audit.fifo: an audit in a FIFO has no checkpoints: remove audit.checkpoint.file and audit.anchor")
	}
	return nil
}

// newNotary returns the notary of the audit, which is open; nil: the audit is in no file.
func (d *Daemon) newNotary(cfg config.Config) *notary.Notary {
	if !hasCheckpoints(cfg) {
		return nil
	}
	return notary.New(notary.Options{
		Exchange: d.exchange(),
		Dir:      d.stateDir,
		Settings: func() notary.Settings { return d.checkpointSettings(d.Active.Load().Cfg) },
		Audit:    d.evidence,
		Client:   func() http.RoundTripper { return d.Active.Load().rules.Egress },
		Log:      d.log,
	})
}

// newestCheckpoint returns the note of the newest checkpoint of the audit; nil: there is none.
func (d *Daemon) newestCheckpoint() []byte {
	if d.notary == nil {
		return nil
	}
	return d.notary.Newest()
}

// checkpointPlaces returns where checkpoints are kept.
func (d *Daemon) checkpointPlaces() []notary.Place {
	if d.notary == nil {
		return nil
	}
	return d.notary.Places()
}
