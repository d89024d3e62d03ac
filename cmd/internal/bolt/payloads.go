package bolt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"robotsproxy/proxy/archive"
)

// maxPayloadBytes is the size limit of a file of Payloads in bytes, enough for about four million.
const maxPayloadBytes = 1 << 30

// The buckets of Payloads: the originals by digest, and the digests of each file (see fileKey).
var (
	originalsBucket = []byte("originals")
	filesBucket     = []byte("files")
)

// Payloads is the [archive.Index] in a file. The file is locked for one process. It is a copy of what the
// archive's files say: if it is damaged, an empty one replaces it, and payloads are archived once more.
//
// Any number of goroutines may share Payloads.
type Payloads struct {
	file string
	log  *slog.Logger
	db   *bbolt.DB
}

// OpenPayloads opens a file, or makes it. The error may be ErrInUse.
func OpenPayloads(file string, log *slog.Logger) (*Payloads, error) {
	p := &Payloads{file: file, log: log}
	if err := p.open(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// open opens the file, or an empty one in place of a damaged one.
func (p *Payloads) open() error {
	err := p.try()
	if !errors.Is(err, errDamaged) {
		return err
	}
	p.log.Warn("index of the archive damaged: it begins anew, so that payloads are archived once more", "file", p.file, "error", err)
	if err := os.Remove(p.file); err != nil {
		return err
	}
	return p.try()
}

func (p *Payloads) try() error {
	handle, _, err := openLocked(p.file)
	if err != nil {
		return err
	}
	err = safely(func() error {
		db, err := openBolt(p.file, handle)
		if err != nil {
			return damage("%v", err)
		}
		p.db = db
		db.MaxSize = maxPayloadBytes
		if err := check(db, handle); err != nil {
			return err
		}
		return db.Update(func(tx *bbolt.Tx) error {
			for _, name := range [][]byte{originalsBucket, filesBucket} {
				if _, err := tx.CreateBucketIfNotExists(name); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		// The first error is the one that is returned.
		if p.db != nil {
			_ = safely(p.db.Close)
		}
		handle.Close()
	}
	return err
}

// Find implements [archive.Index].
func (p *Payloads) Find(d archive.Digest) (of archive.Original, ok bool) {
	err := safely(func() error {
		return p.db.View(func(tx *bbolt.Tx) error {
			value := tx.Bucket(originalsBucket).Get(d[:])
			if ok = value != nil; !ok {
				return nil
			}
			return json.Unmarshal(value, &of)
		})
	})
	return of, ok && err == nil
}

// maxEvictions is how many files of the archive one Add removes the payloads of.
const maxEvictions = 10

// Add implements [archive.Index]. If the index is full, it loses the payloads of the oldest files of the
// archive.
func (p *Payloads) Add(all map[archive.Digest]archive.Original) error {
	err := p.add(all)
	for range maxEvictions {
		if !errors.Is(err, bolterrors.ErrMaxSizeReached) {
			break
		}
		if err := p.update(func(originals, files *bbolt.Bucket) error {
			// Names begin with the time, behind the prefix.
			oldest, _ := files.Cursor().First()
			file, _, _ := bytes.Cut(oldest, separator)
			return removeFile(originals, files, bytes.Clone(file))
		}); err != nil {
			return err
		}
		err = p.add(all)
	}
	return err
}

func (p *Payloads) add(all map[archive.Digest]archive.Original) error {
	return p.update(func(originals, files *bbolt.Bucket) error {
		for d, of := range all {
			// Marshal cannot fail.
			value, _ := json.Marshal(of)
			if err := errors.Join(originals.Put(d[:], value), files.Put(fileKey(of.File, d), nil)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Remove implements [archive.Index].
func (p *Payloads) Remove(file string) error {
	return p.update(func(originals, files *bbolt.Bucket) error { return removeFile(originals, files, []byte(file)) })
}

// RemoveRecords removes the payloads of the records for whose IDs gone is true. It reads the whole index.
func (p *Payloads) RemoveRecords(gone func(id string) bool) error {
	return p.update(func(originals, files *bbolt.Bucket) error {
		removed := map[archive.Digest]string{}
		err := originals.ForEach(func(digest, value []byte) error {
			var of archive.Original
			if err := json.Unmarshal(value, &of); err != nil || gone(of.ID) {
				removed[archive.Digest(digest)] = of.File
			}
			return nil
		})
		for d, file := range removed {
			err = errors.Join(err, originals.Delete(d[:]), files.Delete(fileKey(file, d)))
		}
		return err
	})
}

// Purge closes the file, and rewrites it: free pages may have what was removed.
func (p *Payloads) Purge() error {
	return safely(func() error { return errors.Join(compact(p.db, p.file), p.db.Close()) })
}

// separator is between the name of a file and a digest.
var separator = []byte{0}

// fileKey returns the key in filesBucket for a payload of a file.
func fileKey(file string, d archive.Digest) []byte {
	return append(append([]byte(file), separator...), d[:]...)
}

// removeFile removes the payloads of a file, except those that another file has had since.
func removeFile(originals, files *bbolt.Bucket, file []byte) error {
	prefix := append(bytes.Clone(file), separator...)
	var all [][]byte
	c := files.Cursor()
	for key, _ := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, _ = c.Next() {
		// A deletion would confuse the cursor.
		all = append(all, bytes.Clone(key))
	}
	for _, key := range all {
		var of archive.Original
		payload := key[len(prefix):]
		err := json.Unmarshal(originals.Get(payload), &of)
		if err != nil || of.File == string(file) {
			err = originals.Delete(payload)
		}
		if err := errors.Join(err, files.Delete(key)); err != nil {
			return err
		}
	}
	return nil
}

// update changes the buckets in one commit.
func (p *Payloads) update(change func(originals, files *bbolt.Bucket) error) error {
	return safely(func() error {
		return p.db.Update(func(tx *bbolt.Tx) error {
			return change(tx.Bucket(originalsBucket), tx.Bucket(filesBucket))
		})
	})
}

// Close closes the file.
func (p *Payloads) Close() error { return safely(p.db.Close) }
