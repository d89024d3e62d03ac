package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
)

// openAudit opens the audit, which is in home unless the configuration says otherwise.
func (h *house) openAudit(cfg config.Config, home string) (err error) {
	h.auditFile = cfg.Audit.File
	if h.auditFile == "" {
		h.auditFile = filepath.Join(home, auditName)
	}
	client, err := clientsAs(cfg.Audit.Clients, home)
	if err != nil {
		return err
	}
	h.snapshots, err = snapshot.Open(snapshot.Options{
		Dir:     filepath.Join(home, snapshotsName),
		NoSync:  cfg.Audit.Sync == "none",
		MaxAge:  cfg.Audit.SnapshotMaxAge,
		MaxSize: int64(cfg.Audit.SnapshotMaxSize),
		Log:     h.log,
	})
	if err != nil {
		return err
	}
	h.evidence, err = audit.Open(audit.Options{
		File:        h.auditFile,
		MaxSize:     int64(cfg.Audit.MaxSize),
		MaxFiles:    cfg.Audit.MaxFiles,
		Sync:        map[string]audit.Sync{"none": audit.SyncNone, "interval": audit.SyncInterval, "always": audit.SyncAlways}[cfg.Audit.Sync],
		BlockedOnly: cfg.Audit.Include == "blocked",
		DropQuery:   cfg.Audit.QueryStrings == "drop",
		Client:      client,
		Continue:    cfg.Audit.OnError == "continue",
		Snapshots:   h.snapshots,
		Log:         h.log,
	})
	return err
}

// clientsAs says what stands for a client in the audit; nil: its name.
func clientsAs(how, home string) (func(string) string, error) {
	switch how {
	case "hash":
		key, err := secret(filepath.Join(home, keyName))
		return audit.Pseudonym(key), err
	case "drop":
		return audit.Anonym, nil
	}
	return nil, nil
}

const secretOctets = 32

// secret reads the key in a file, which it makes where there is none.
func secret(file string) (key []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("audit.clients: %w", err)
		}
	}()
	key, err = os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, secretOctets)
		rand.Read(key) // never fails (crypto/rand since Go 1.24)
		err = replaceFile(file, func(w io.Writer) error { _, err := w.Write(key); return err })
	}
	if err == nil && len(key) != secretOctets {
		err = fmt.Errorf("%s is no key of %d octets; once it is removed, another is made, by which no client has the name that it had", file, secretOctets)
	}
	return key, err
}
