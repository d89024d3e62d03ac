package bolt

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"robotsproxy/cmd/internal/seal"
	"robotsproxy/policy/osfile"
	"robotsproxy/policy/pace"
)

// reserve is the divisor of maxBytes that gives the space that only empty may use, because freeing
// pages takes pages. The file grows in steps of half that space.
const reserve = 32

// ErrInUse means that another process has the file open.
var ErrInUse = errors.New("in use by another robotsproxy")

// fileContents is what Open reads from a file.
type fileContents struct {
	clocks []pace.Clock

	// since is what Store.Since returns.
	since time.Time
	audit AuditEnd
	uses  [][]byte
	stops map[string][]byte
}

// safely runs f, which uses bbolt, and turns a panic or a fault into a damage error.
func safely(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damage("%v", p)
		}
	}()
	return f()
}

// A database is the file and bbolt's handle of it. It must not be shared by goroutines, except for
// counts and filed.
type database struct {
	file      string
	maxBytes  int64
	maxClocks int
	log       *slog.Logger

	// counts are the Stats that Store.mu does not guard.
	counts counts

	// db is nil if the file is not open.
	db *bbolt.DB

	// handle is the file of db, which has the lock, and info describes it.
	handle *os.File
	info   os.FileInfo

	// kept is how many values each table of db has.
	kept [tableCount]int

	// filed has the keys of the entries in the file.
	filed keyIndex
}

// openOrReplace opens the file, or a new one if it is damaged.
func (d *database) openOrReplace() (fileContents, error) {
	initial, err := d.open()
	if !errors.Is(err, errDamaged) {
		return initial, err
	}
	initial = fileContents{since: time.Now()}
	if err := d.renameDamaged(err); err != nil {
		return initial, err
	}
	_, err = d.open()
	return initial, err
}

// open opens the file. If it can be read but not written, what was read is returned nevertheless.
func (d *database) open() (initial fileContents, err error) {
	initial = fileContents{since: time.Now()}
	if d.handle, d.info, err = openLocked(d.file); err != nil {
		return initial, err
	}
	if !d.info.Mode().IsRegular() {
		return initial, damage("not a regular file")
	}
	err = safely(func() (err error) {
		if d.db, err = openBolt(d.file, d.handle); err != nil {
			return err
		}
		if err := check(d.db, d.handle); err != nil {
			return err
		}
		if err := d.db.View(func(tx *bbolt.Tx) error { return initial.read(tx, d.maxClocks) }); err != nil {
			return err
		}
		if err := d.shrink(); err != nil {
			return err
		}
		d.db.MaxSize = int(d.maxBytes - d.maxBytes/reserve)
		d.db.AllocSize = int(d.maxBytes / reserve / 2)
		if err := d.db.Update(createBuckets); err != nil {
			return err
		}
		return d.sweep(d.db)
	})
	d.measure()
	if err != nil && !errors.Is(err, errDamaged) {
		// The first error is the one that is returned.
		if d.db != nil {
			_ = safely(d.db.Close)
		}
		d.forgetFile()
	}
	return initial, err
}

// openBolt makes bbolt open a file by its handle, which has the lock already.
func openBolt(file string, handle *os.File) (*bbolt.DB, error) {
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{
		Timeout:      time.Millisecond,
		FreelistType: bbolt.FreelistMapType,
		OpenFile:     func(string, int, os.FileMode) (*os.File, error) { return handle, nil },
	})
	if _, disk := errors.AsType[syscall.Errno](err); err != nil && !disk {
		return nil, damage("%v", err)
	}
	return db, err
}

// shrink rewrites a file that an older version let grow beyond maxBytes.
func (d *database) shrink() error {
	if d.info.Size() <= d.maxBytes {
		return nil
	}
	if err := d.sweepTo(d.db, d.maxBytes/2); err != nil {
		return err
	}
	if err := compact(d.db, d.file); err != nil {
		return err
	}
	err := d.db.Close()
	if err != nil {
		return err
	}
	if d.handle, d.info, err = openLocked(d.file); err != nil {
		return err
	}
	d.db, err = openBolt(d.file, d.handle)
	return err
}

// compact replaces a file by one with the contents of db alone, which db does not use.
func compact(db *bbolt.DB, file string) error {
	small := file + ".small"
	// A crash may have left the file.
	if err := os.RemoveAll(small); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	to, err := bbolt.Open(small, 0o600, nil)
	if err == nil {
		err = errors.Join(bbolt.Compact(to, db, maxCommit), to.Close(), osfile.Chown(small, info))
	}
	if err == nil {
		err = os.Rename(small, file)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(small))
	}
	return nil
}

// read reads the contents, with at most most clocks.
func (c *fileContents) read(tx *bbolt.Tx, most int) error {
	meta, clocks := tx.Bucket(metaBucket), tx.Bucket(clocksBucket)
	if meta == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return damage("written by another program")
		}
		// The file is new.
		c.since = time.Time{}
		return nil
	}
	if was := meta.Get(formatKey); !bytes.Equal(was, format) {
		return damage("written by another version, %q", was)
	}
	if clocks == nil || tx.Bucket(robotsBucket) == nil {
		return damage("a bucket is missing")
	}
	if end := meta.Get(endKey); end != nil {
		if err := c.since.UnmarshalBinary(end); err != nil {
			return damage("the time of its last use: %v", err)
		}
	}
	if err := c.audit.read(meta); err != nil {
		return err
	}
	if err := c.readStops(tx); err != nil {
		return err
	}
	now := time.Now()
	if err := c.readUses(tx.Bucket(usesBucket), now, most); err != nil {
		return err
	}
	err := clocks.ForEach(func(key, value []byte) error {
		v := seal.Value(value)
		if !v.IsWhole(string(key)) {
			return damage("the clock of %q", key)
		}
		text := v.Current(now)
		if text == nil {
			return nil
		}
		var clock pace.Clock
		if err := json.Unmarshal(text, &clock); err != nil {
			return damage("the clock of %q: %v", key, err)
		}
		if c.clocks = append(c.clocks, clock); len(c.clocks) >= 2*most {
			c.bound(most)
		}
		return nil
	})
	c.bound(most)
	return err
}

// readUses reads what SaveUse stored, at most twice as many texts as most. Files of earlier versions have no such bucket.
func (c *fileContents) readUses(bucket *bbolt.Bucket, now time.Time, most int) error {
	if bucket == nil {
		return nil
	}
	return bucket.ForEach(func(key, value []byte) error {
		v := seal.Value(value)
		if !v.IsWhole(string(key)) {
			return damage("the use of %q", key)
		}
		if text := v.Current(now); text != nil && len(c.uses) < 2*most {
			c.uses = append(c.uses, text)
		}
		return nil
	})
}

// bound removes the clocks beyond most, first those that expire last.
func (c *fileContents) bound(most int) {
	if len(c.clocks) <= most {
		return
	}
	slices.SortFunc(c.clocks, func(a, b pace.Clock) int { return a.Until().Compare(b.Until()) })
	c.clocks = slices.Clip(slices.Delete(c.clocks, most, len(c.clocks)))
}

// createBuckets makes the buckets of a new file, or those that the file of an earlier version lacks, and deletes the mark of the orderly
// end of the latter.
func createBuckets(tx *bbolt.Tx) error {
	if _, err := tx.CreateBucketIfNotExists(stopsBucket); err != nil {
		return err
	}
	if meta := tx.Bucket(metaBucket); meta != nil {
		_, err := tx.CreateBucketIfNotExists(usesBucket)
		return cmp.Or(err, meta.Delete(endKey))
	}
	for _, name := range [][]byte{robotsBucket, clocksBucket, usesBucket, metaBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return tx.Bucket(metaBucket).Put(formatKey, format)
}

// openLocked opens and locks the file, which still has that name when it returns.
func openLocked(name string) (*os.File, os.FileInfo, error) {
	for {
		f, err := osfile.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			// A missing file is not damaged.
			for _, no := range []error{syscall.EISDIR, fs.ErrPermission, syscall.ELOOP, syscall.ENXIO, syscall.ENOTDIR} {
				if _, lost := os.Lstat(name); lost == nil && errors.Is(err, no) {
					return nil, nil, damage("%v", err)
				}
			}
			return nil, nil, err
		}
		info, has := os.FileInfo(nil), false
		if err = lock(f, osfile.TryLock); err == nil {
			info, err = f.Stat()
		}
		if err == nil {
			has, err = hasName(info, name)
		}
		if has {
			return f, info, nil
		}
		f.Close()
		// Without an error, the file was renamed or deleted before it was locked.
		if err != nil {
			return nil, nil, err
		}
	}
}

// lock takes a lock before bbolt does, until this handle is closed. It returns ErrInUse instead of ErrLocked.
func lock(f *os.File, try func(*os.File) error) error {
	err := try(f)
	if errors.Is(err, osfile.ErrLocked) {
		return ErrInUse
	}
	return err
}

// hasName reports whether the file still has that name.
func hasName(file os.FileInfo, name string) (bool, error) {
	named, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(file, named), err
}

// renameDamaged renames the file, to be examined later, and leaves the database closed.
func (d *database) renameDamaged(cause error) error {
	// The lock is released after the renaming, which needs it.
	defer d.forgetFile()
	kept := d.file + ".damaged-" + time.Now().UTC().Format("20060102T150405.000000Z")
	// Another process may have renamed or deleted the file already.
	if d.handle != nil {
		if ours, err := hasName(d.info, d.file); err != nil || !ours {
			return err
		}
	}
	if err := os.Rename(d.file, kept); err != nil {
		return fmt.Errorf("rename damaged %s (%w): %w", d.file, cause, err)
	}
	d.counts.damaged.Add(1)
	d.log.Error("damaged state.db set aside, starting with an empty one",
		"forgotten", "cached robots.txt and tdmrep.json files, pauses, back-offs and delays of hosts, the end of the audit, "+
			"used quotas and budgets",
		"file", d.file, "kept_as", kept, "error", cause)
	return nil
}

// forgetFile leaves the file unchanged. It does not close bbolt's handle, which may be locked for
// good or in use by a goroutine that panicked: the mapping stays.
func (d *database) forgetFile() {
	d.db = nil
	if d.handle != nil {
		// Closing the file releases the lock.
		d.handle.Close()
		d.handle = nil
	}
}

// counts is the part of Stats that any goroutine may change.
type counts struct {
	// size is Stats.Bytes.
	size                    atomic.Int64
	failures, damaged, lost atomic.Uint64
}

// measure notes the size of the file.
func (d *database) measure() {
	if d.handle == nil {
		return
	}
	if info, err := d.handle.Stat(); err == nil {
		d.counts.size.Store(info.Size())
	}
}

// sweep removes expired values. If three quarters of maxBytes are in use, it also removes other
// entries until about half is in use: first those of the clients that have the most, and of one
// client first those that expire soonest. The space up to maxBytes is left for commits.
func (d *database) sweep(db *bbolt.DB) error {
	if inUse(db) > d.maxBytes/4*3 {
		return d.sweepTo(db, d.maxBytes/2)
	}
	return d.sweepTo(db, d.maxBytes)
}

// sweepTo removes expired values, and other entries if more than most bytes are in use.
func (d *database) sweepTo(db *bbolt.DB, most int64) error {
	entries, err := read(db, robotsBucket)
	if err != nil {
		return err
	}
	if used := inUse(db); used > most {
		d.filed.fillOwners(entries.kept)
		// The entries shrink in the proportion in which the pages in use must shrink.
		entries.reduce(int64(float64(entries.bytes) * float64(most) / float64(used)))
	}
	err = entries.deleteRemoved(db, robotsBucket)
	for i := range tables {
		if err == nil {
			err = d.sweepTable(db, i)
		}
	}
	if err != nil {
		return err
	}
	d.filed.replace(entries.kept)
	return nil
}

// sweepTable removes the expired values of one of tables. If more than maxClocks are left, it removes those that expire
// last, as a Pacer does.
func (d *database) sweepTable(db *bbolt.DB, i int) error {
	values, err := read(db, tables[i])
	if err != nil {
		return err
	}
	if all := values.kept; len(all) > d.maxClocks {
		slices.SortFunc(all, byExpiry)
		for _, h := range all[d.maxClocks:] {
			values.removed = append(values.removed, h.key)
		}
		values.kept = all[:d.maxClocks]
	}
	if err := values.deleteRemoved(db, tables[i]); err != nil {
		return err
	}
	d.kept[i] = len(values.kept)
	return nil
}

// makeRoom leaves a quarter in use. It is for a file whose free pages are too scattered for a
// commit.
func (d *database) makeRoom(db *bbolt.DB) error { return d.sweepTo(db, d.maxBytes/4) }

// empty removes all entries. It is for a file in which makeRoom cannot commit either, and may use
// the reserve.
func (d *database) empty(db *bbolt.DB) error {
	d.log.Warn("state.db full, forgetting cached robots.txt and tdmrep.json files", "file", d.file)
	was := db.MaxSize
	db.MaxSize = int(d.maxBytes)
	defer func() { db.MaxSize = was }()
	err := db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket(robotsBucket); err != nil {
			return err
		}
		_, err := tx.CreateBucket(robotsBucket)
		return err
	})
	if err == nil {
		d.filed.replace(nil)
	}
	return err
}

// inUse returns how many bytes of the file are in use. The rest is free for the next commits; the
// file does not shrink.
func inUse(db *bbolt.DB) (n int64) {
	// If db is closed, View fails, and nothing is in use.
	_ = db.View(func(tx *bbolt.Tx) error {
		n = tx.Size()
		return nil
	})
	st := db.Stats()
	return n - int64(st.FreePageN+st.PendingPageN)*int64(db.Info().PageSize)
}
