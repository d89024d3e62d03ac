package bolt

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"

	"robotsproxy/cmd/internal/seal"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/osfile"
)

// An AuditEnd is the last line of an audit that the disk had. The zero AuditEnd is unknown.
type AuditEnd struct {
	// File is the name of the audit.
	File string
	Seq  uint64
	Hash trail.Hash

	// Open is audit.End.Open.
	Open uint64 `json:",omitempty"`
}

// ReadAuditEnd returns the AuditEnd in a file, and changes nothing; zero: there is none, or no file. It
// returns ErrInUse while a Store has the file open.
func ReadAuditEnd(file string) (end AuditEnd, err error) {
	if info, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return end, nil
	}
	f, err := osfile.Open(file)
	if err != nil {
		return end, err
	}
	defer f.Close()
	if err := lock(f, osfile.TryRLock); err != nil {
		return end, err
	}
	err = safely(func() error {
		db, err := bbolt.Open(file, 0, &bbolt.Options{
			// check needs the list of free pages.
			ReadOnly: true, PreLoadFreelist: true,
			OpenFile: func(string, int, os.FileMode) (*os.File, error) { return f, nil },
		})
		if err != nil {
			return err
		}
		defer db.Close()
		if err := check(db, f); err != nil {
			return err
		}
		return db.View(func(tx *bbolt.Tx) error {
			if meta := tx.Bucket(metaBucket); meta != nil {
				return end.read(meta)
			}
			return nil
		})
	})
	return end, err
}

// read reads the AuditEnd in the bucket meta.
func (e *AuditEnd) read(meta *bbolt.Bucket) error {
	value := seal.Value(meta.Get(auditKey))
	if value == nil {
		return nil
	}
	if !value.IsWhole(string(auditKey)) {
		return damage("the end of the audit")
	}
	if err := json.Unmarshal(value[seal.Bytes:], e); err != nil {
		return damage("the end of the audit: %v", err)
	}
	return nil
}
