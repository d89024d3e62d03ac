package daemon

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
)

// openAudit opens the audit, which is at home unless the configuration says otherwise.
func (h *Daemon) openAudit(f *generation) (err error) {
	if h.snapshots, err = snapshot.Open(f.snapshots); err != nil {
		return err
	}
	o := f.audit
	o.Snapshots = h.snapshots
	h.auditFile = o.File
	h.evidence, err = audit.Open(o)
	return err
}

// kept is how the octets of robots.txt files are kept.
func (h *Daemon) kept(cfg config.Config) snapshot.Options {
	return snapshot.Options{
		Dir:     filepath.Join(h.home, cli.SnapshotsName),
		NoSync:  cfg.Audit.Sync == "none",
		MaxAge:  cfg.Audit.SnapshotMaxAge,
		MaxSize: int64(cfg.Audit.SnapshotMaxSize),
		Log:     h.log,
	}
}

// recorded is how the audit is written, but for its Snapshots.
func (h *Daemon) recorded(cfg config.Config) (audit.Options, error) {
	client, err := clientsAs(cfg.Audit.Clients, h.home)
	return audit.Options{
		File:        cmp.Or(cfg.Audit.File, filepath.Join(h.home, cli.AuditName)),
		MaxSize:     int64(cfg.Audit.MaxSize),
		MaxFiles:    cfg.Audit.MaxFiles,
		Sync:        map[string]audit.Sync{"none": audit.SyncNone, "interval": audit.SyncInterval, "always": audit.SyncAlways}[cfg.Audit.Sync],
		BlockedOnly: cfg.Audit.Include == "blocked",
		DropQuery:   cfg.Audit.QueryStrings == "drop",
		Replica:     replicaName(cfg.Store, os.Hostname),
		Client:      client,
		Continue:    cfg.Audit.OnError == "continue",
		Tap:         h.tap(),
		Log:         h.log,
	}, err
}

// clientsAs says what stands for a client in the audit; nil: its name.
func clientsAs(how, home string) (func(string) string, error) {
	switch how {
	case "hash":
		key, err := secret(filepath.Join(home, cli.KeyName))
		return audit.Pseudonym(key), err
	case "drop":
		return audit.Anonym, nil
	}
	return nil, nil
}

const SecretOctets = 32

// secret reads the key in a file, which it makes where there is none.
func secret(file string) (key []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("audit.clients: %w", err)
		}
	}()
	key, err = os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, SecretOctets)
		rand.Read(key) // never fails (crypto/rand since Go 1.24)
		err = cli.ReplaceFile(file, func(w io.Writer) error { _, err := w.Write(key); return err })
	}
	if err == nil && len(key) != SecretOctets {
		err = fmt.Errorf("%s is no key of %d octets; once it is removed, another is made, by which no client has the name that it had", file, SecretOctets)
	}
	return key, err
}
