package archivecmd

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/osfile"
	proxyarchive "robotsproxy/proxy/archive"
	"robotsproxy/proxy/archive/warc"
)

// An Erasure erases captures from an archive. Create it with NewErasure. It is for one goroutine.
type Erasure struct {
	// Found is what Find has found.
	Found warc.Erasure

	// dir is the directory of the archive, and files are those that have something to erase.
	dir   string
	files archive

	// needed are the IDs of the captures that the archive should have.
	needed []string

	// payloads is the index of the archive, whose lock is that of the archive; nil: there is nothing to erase.
	payloads *bolt.Payloads
}

// NewErasure returns an Erasure for the archive in a directory; "": there is none.
func NewErasure(dir string) *Erasure {
	return &Erasure{dir: dir, Found: warc.Erasure{IDs: map[string]bool{}}}
}

// Add adds the capture with a WARC-Record-ID; "" adds none. needed says that the archive should have it.
func (e *Erasure) Add(id string, needed bool) {
	if id == "" {
		return
	}
	e.Found.IDs[id] = false
	if needed {
		e.needed = append(e.needed, id)
	}
}

// Missing returns how many of the needed captures the archive does not have.
func (e *Erasure) Missing() (n int) {
	for _, id := range e.needed {
		if !e.Found.IDs[id] {
			n++
		}
	}
	return n
}

// Search adds the captures whose metadata record matches, and which the archive need not have. value returns what the record says
// under a name, such as id and client.
func (e *Erasure) Search(matches func(url string, value func(name string) string) bool) error {
	if e.dir == "" {
		return nil
	}
	files, err := filesIn(e.dir)
	if err != nil {
		return err
	}
	return files.each(func(rec *warc.Record, _ place) {
		if rec.Type() != warc.TypeMetadata || rec.IsBlank() {
			return
		}
		// The reader returns an error of the block again for the next record.
		text, _ := io.ReadAll(io.LimitReader(rec.Block, maxMetadata))
		if matches(rec.TargetURI(), func(name string) string { return warc.FieldOf(text, name) }) {
			for _, id := range rec.All("WARC-Concurrent-To") {
				e.Add(id, false)
			}
		}
	})
}

// Find looks for the captures. It changes nothing.
func (e *Erasure) Find() error {
	if len(e.Found.IDs) == 0 || e.dir == "" {
		return nil
	}
	files, err := filesIn(e.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		changed, err := f.find(&e.Found)
		if err != nil {
			return f.wrap(err)
		}
		if changed {
			e.files = append(e.files, f)
		}
	}
	return nil
}

// find adds what the file has to what is to be erased.
func (f file) find(found *warc.Erasure) (changed bool, err error) {
	in, err := osfile.Open(f.path)
	if err != nil {
		return false, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return false, err
	}
	return found.Erase(io.Discard, in, info.Size())
}

// Lock locks the archive for Erase, if Find has found something. The error may be bolt.ErrInUse.
func (e *Erasure) Lock(log *slog.Logger) (err error) {
	if len(e.Found.IDs) == 0 || e.dir == "" {
		return nil
	}
	name := filepath.Join(e.dir, daemon.PayloadsName)
	// The index may have captures of files that somebody has removed.
	if _, err := os.Stat(name); err != nil && len(e.files) == 0 {
		return nil
	}
	e.payloads, err = bolt.OpenPayloads(name, log)
	return err
}

// Erase erases what Find has found, and lets no later record refer to it. Call it between Lock and Close.
func (e *Erasure) Erase(log *slog.Logger) error {
	if e.payloads == nil {
		return nil
	}
	err := e.payloads.RemoveRecords(func(id string) bool {
		_, is := e.Found.IDs[id]
		return is
	})
	if err = errors.Join(err, e.payloads.Purge()); err != nil {
		return err
	}
	if err := e.Lock(log); err != nil {
		return err
	}
	// What a crash has left of bodies has no record.
	if err := proxyarchive.RemoveBodies(e.dir); err != nil {
		return err
	}
	for _, f := range e.files {
		err := osfile.Rewrite(f.path, func(in *os.File, size int64, out io.Writer) error {
			again := warc.Erasure{IDs: e.Found.IDs}
			_, err := again.Erase(out, in, size)
			return err
		})
		if err != nil {
			return f.wrap(err)
		}
	}
	return nil
}

// Close unlocks the archive.
func (e *Erasure) Close() error {
	if e.payloads == nil {
		return nil
	}
	return e.payloads.Close()
}
