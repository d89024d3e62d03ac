package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/osfile"
	"robotsproxy/proxy/archive/warc"
)

const (
	// openExt ends the name of a file that is written.
	openExt = ".open"
	// tornExt ends the name of the file with the incomplete record that a crash has left.
	tornExt = ".torn"
	// maxLarge is how many exchanges with large bodies are written at once.
	maxLarge = 4
	// agePart is the divisor of Options.MaxAge after which a file is completed: a record is removed with its
	// whole file, which must not be much later than after MaxAge.
	agePart = 10
	// lookInterval is the least time between two looks at the name of the file that is written.
	lookInterval = 100 * time.Millisecond
)

// fileName matches the names of complete files, whatever their prefix, with the time in them.
var fileName = regexp.MustCompile(`-([0-9]{14})([0-9]{3})-[0-9]{5,}\.warc(\.gz)?$`)

// isFileName reports whether a file is one of an archive, complete or not.
func isFileName(name string) bool { return fileName.MatchString(strings.TrimSuffix(name, openExt)) }

// Began returns when a file of an archive was begun, by its name, whatever its prefix. ok is false if it is no such name. An
// impossible time, which somebody else has put into the name, counts as the zero time.
func Began(name string) (at time.Time, ok bool) {
	parts := fileName.FindStringSubmatch(strings.TrimSuffix(name, openExt))
	if parts == nil {
		return time.Time{}, false
	}
	at, _ = time.Parse("20060102150405.000", parts[1]+"."+parts[2])
	return at, true
}

// A form is what the Options say of all records of a file.
type form struct {
	prefix                         string
	compress, keepSecrets, noQuery bool
}

func (o *Options) form() form { return form{o.Prefix, o.Compress, o.KeepSecrets, o.DropQuery} }

// fileLimit returns the size in bytes at which a file is complete. Files that are being written are not removed, so they
// may take only a part of MaxTotal.
func (o *Options) fileLimit() int64 {
	if o.MaxTotal <= 0 {
		return o.MaxFile
	}
	return min(o.MaxFile, o.MaxTotal/(2*maxLarge))
}

// files are the files of an archive. Large exchanges are written to other files than small ones.
type files struct {
	dir      string
	software string
	options  atomic.Pointer[Options]

	// forget is called before a file is removed, and for a file that somebody else has removed.
	forget func(name string) error

	// small writes the small exchanges. large has the writers of large exchanges that no exchange uses now. all has
	// all writers.
	small writer
	large chan *writer
	all   []*writer
	turns turns

	// serial is the number in the name of the last file.
	serial atomic.Uint64
	disk   *osfile.Watch

	// full holds a token if a file was completed or is full, or the options have changed.
	full chan struct{}
}

func newFiles(dir, software string, disk *osfile.Watch, forget func(name string) error) *files {
	f := &files{
		dir: dir, software: software, disk: disk, forget: forget,
		large: make(chan *writer, maxLarge), full: make(chan struct{}, 1),
	}
	f.small.disk = disk
	f.all = []*writer{&f.small}
	for range maxLarge {
		w := &writer{disk: disk}
		f.all = append(f.all, w)
		f.large <- w
	}
	return f
}

func (f *files) wake() {
	select {
	case f.full <- struct{}{}:
	default:
	}
}

// appendLarge is append to a file of large exchanges, in the client's turn.
func (f *files) appendLarge(
	client string, o *Options, write func(io.Writer) error, written func(name string),
) (name string, offset int64, err error) {
	defer f.turns.take(client)()
	w := <-f.large
	defer func() { f.large <- w }()
	return f.append(w, o, write, written)
}

// sync waits until the disk has what was written.
func (f *files) sync() (err error) {
	for _, w := range f.all {
		err = errors.Join(err, w.sync())
	}
	return err
}

// close completes all files.
func (f *files) close() (err error) {
	for _, w := range f.all {
		w.mu.Lock()
		err = errors.Join(err, w.complete(f.options.Load().Sync))
		w.mu.Unlock()
	}
	return err
}

// A writer writes one file after the other.
type writer struct {
	disk *osfile.Watch

	// mu guards the fields from file to looked.
	mu sync.Mutex

	// file is the open file; nil: none. It changes only while syncing is locked too.
	file *os.File

	// name is the name that the file gets when it is complete.
	name string

	// form is the form of the file's records, size the size of the file in bytes, and began when it was opened.
	form  form
	size  int64
	began time.Time

	// looked is when isGone last found the file.
	looked time.Time

	// syncing is held while the file is synced, opened or closed. It is taken under mu, but mu is never taken under it.
	syncing sync.Mutex

	// unsynced says that the disk may lack a part of the file.
	unsynced atomic.Bool

	// named says that the disk has the name of the file. syncing guards it.
	named bool
}

// append has write write the records of one exchange behind the others. o are the options under which the exchange
// began: what the first record of the file says must be true of its records. append returns the name of the file, and
// the offset of the records in it. After an error the file is as before. Without an error, append calls written before
// the file can be forgotten.
func (f *files) append(
	w *writer, o *Options, write func(io.Writer) error, written func(name string),
) (name string, offset int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := f.prepare(w, o); err != nil {
		return "", 0, err
	}
	before := w.size
	out := &offsetWriter{file: w.file, disk: f.disk, at: before}
	err = write(out)
	w.unsynced.Store(true)
	if err == nil && o.Sync == audit.SyncAlways {
		err = w.sync()
	}
	if err != nil {
		// If the file cannot be cut, the next Open cuts the incomplete record off.
		if cut := w.file.Truncate(before); cut != nil {
			w.close()
		}
		return "", 0, err
	}
	if w.size = out.at; w.size >= o.fileLimit() {
		f.wake()
	}
	written(w.name)
	return w.name, before, nil
}

// prepare opens a file if there is none, or another one has to be begun. The caller holds w.mu.
func (f *files) prepare(w *writer, o *Options) error {
	defer f.disk.Begin(osfile.MaxWrite).End()
	if w.file != nil {
		if err := f.completeIfDue(w, o); err != nil {
			return err
		}
	}
	if w.file != nil {
		return nil
	}
	return f.open(w, o)
}

// completeIfDue completes the file if another one has to be begun. The caller holds w.mu.
func (f *files) completeIfDue(w *writer, o *Options) error {
	gone := w.isGone()
	if gone {
		// No revisit may refer to a record that somebody has removed.
		if err := f.forget(w.name); err != nil {
			return err
		}
	}
	if !gone && w.size < o.fileLimit() && w.form == o.form() && (o.MaxAge <= 0 || time.Since(w.began) <= o.MaxAge/agePart) {
		return nil
	}
	if err := w.complete(o.Sync); err != nil {
		return err
	}
	f.wake()
	return nil
}

// An offsetWriter writes to a file from an offset on.
type offsetWriter struct {
	file *os.File
	disk *osfile.Watch
	at   int64
}

func (w *offsetWriter) Write(b []byte) (int, error) {
	defer w.disk.Begin(osfile.MaxWrite).End()
	n, err := w.file.WriteAt(b, w.at)
	w.at += int64(n)
	return n, err
}

// open begins a file with its warcinfo record.
func (f *files) open(w *writer, o *Options) error {
	now := time.Now().UTC()
	ext := ".warc"
	if o.Compress {
		ext += ".gz"
	}
	name := f.newName(o.Prefix, ext, now)
	file, err := osfile.OpenFile(filepath.Join(f.dir, name+openExt), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	out := &offsetWriter{file: file, disk: f.disk}
	if err := encode(out, o.Compress, []record{warcinfo(name, now, f.software, o)}); err != nil {
		return errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	w.syncing.Lock()
	w.file, w.named = file, false
	w.syncing.Unlock()
	w.name, w.form, w.size, w.began = name, o.form(), out.at, now
	return nil
}

// newName returns a name that no file has. Only one Archive writes to the directory, but one may have been closed
// in the same millisecond.
func (f *files) newName(prefix, ext string, now time.Time) string {
	for {
		name := fmt.Sprintf("%s-%s%03d-%05d%s", prefix, now.Format("20060102150405"), now.Nanosecond()/1e6, f.serial.Add(1), ext)
		// Another error than that there is no such file occurs again when the file is opened.
		if _, err := os.Lstat(filepath.Join(f.dir, name)); err != nil {
			return name
		}
	}
}

// isGone reports whether the file was removed or renamed by somebody else. While it is there, isGone looks only now and
// then.
func (w *writer) isGone() bool {
	now := time.Now()
	if now.Sub(w.looked) < lookInterval {
		return false
	}
	_, there := osfile.Named(w.file, w.file.Name())
	if there {
		w.looked = now
	}
	return !there
}

// complete renames the file, if there is one. The caller holds w.mu.
func (w *writer) complete(how audit.Sync) error {
	if w.file == nil {
		return nil
	}
	if how != audit.SyncNone {
		if err := w.sync(); err != nil {
			return err
		}
	}
	path := w.file.Name()
	if err := w.close(); err != nil {
		return err
	}
	err := os.Rename(path, filepath.Join(filepath.Dir(path), w.name))
	if errors.Is(err, fs.ErrNotExist) {
		// Somebody has removed the file.
		return nil
	}
	if err == nil && how != audit.SyncNone {
		err = osfile.Sync(filepath.Dir(path))
	}
	return err
}

// close closes the file. The caller holds w.mu.
func (w *writer) close() error {
	w.syncing.Lock()
	defer w.syncing.Unlock()
	file := w.file
	w.file = nil
	w.unsynced.Store(false)
	return file.Close()
}

// sync waits until the disk has what was written. It holds up no exchange, and waits for none.
func (w *writer) sync() error {
	w.syncing.Lock()
	defer w.syncing.Unlock()
	if w.file == nil || !w.unsynced.Swap(false) {
		return nil
	}
	defer w.disk.Begin(osfile.MaxSync).End()
	err := w.file.Sync()
	if err == nil && !w.named {
		err = osfile.Sync(filepath.Dir(w.file.Name()))
	}
	if err != nil {
		w.unsynced.Store(true)
		return err
	}
	w.named = true
	return nil
}

// RemoveBodies removes the bodies that a crash has left in the directory of an archive, which nobody else uses.
func RemoveBodies(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		// A link or a directory belongs to somebody else.
		if e.Type().IsRegular() && strings.HasPrefix(e.Name(), spoolPrefix) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// recover completes the files that a crash has left, and removes the bodies that were not complete.
func (f *files) recover() error {
	if err := RemoveBodies(f.dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), openExt) && isFileName(e.Name()) {
			path := filepath.Join(f.dir, e.Name())
			torn, failed := complete(path)
			if err = errors.Join(err, failed); torn != "" {
				f.options.Load().Log.Warn("archive incomplete at start", "file", path,
					"detail", "the incomplete record at the end was moved to another file", "set_aside", torn)
			}
		}
	}
	return err
}

// complete renames a file that a crash has left. It moves an incomplete record at the end to another file,
// whose name it returns.
func complete(path string) (torn string, err error) {
	f, err := osfile.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	whole, size, err := wholeRecords(f)
	if err != nil {
		return "", err
	}
	name := path[:len(path)-len(openExt)]
	if whole < size {
		torn = name + tornExt
		if err := moveTail(f, whole, size, torn); err != nil {
			return "", err
		}
	}
	if whole == 0 {
		return torn, os.Remove(path)
	}
	return torn, errors.Join(f.Sync(), os.Rename(path, name), osfile.Sync(filepath.Dir(path)))
}

// wholeRecords returns the length of the complete records at the beginning of a file, and of the file.
func wholeRecords(f *os.File) (whole, size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	whole, err = warc.ForEach(f, func(*warc.Record) error { return nil })
	if _, failed := errors.AsType[*fs.PathError](err); failed {
		// The file cannot be read, so nothing is known about its records.
		return 0, 0, err
	}
	return whole, info.Size(), nil
}

// moveTail moves the bytes of a file from an offset on to another file. A move that a crash has interrupted begins
// anew.
func moveTail(f *os.File, from, size int64, name string) error {
	to, err := osfile.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.NewSectionReader(f, from, size-from))
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return f.Truncate(from)
}

// turns lets one exchange of a client at a time write a large body, so that one client cannot take all
// writers.
type turns struct {
	mu      sync.Mutex
	clients map[string]*turn
}

type turn struct {
	mu sync.Mutex

	// users counts those that hold mu or wait for it. turns.mu guards it.
	users int
}

// take waits for the turn of a client, and returns a function that ends it.
func (t *turns) take(client string) (end func()) {
	t.mu.Lock()
	if t.clients == nil {
		t.clients = make(map[string]*turn)
	}
	of := t.clients[client]
	if of == nil {
		of = new(turn)
		t.clients[client] = of
	}
	of.users++
	t.mu.Unlock()
	of.mu.Lock()
	return func() {
		of.mu.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(t.clients, client)
		}
	}
}
