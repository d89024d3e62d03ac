package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
)

const (
	debounce    = 200 * time.Millisecond // from the last change of a file until it is read; editors write in several steps
	maxDebounce = 2 * time.Second        // from the first change, if changes go on
	maxLogged   = 20                     // changes that are logged, one per line
	maxWatched  = 2 << 20                // bytes of a file that are compared; no file that is read may be larger
)

// settings say where serve reads its configuration, at the start and at each reload.
type settings struct {
	// file is the configuration file; "": there is no file to read again.
	file string

	// load reads the file, applies the flags, and checks the result.
	load func() (config.Config, error)

	// sum is the checksum of the file from before it was first read.
	sum [sha256.Size]byte

	// files has the checksums of the files that the configuration names, from before they were first read.
	files map[string][sha256.Size]byte

	// level is the level of the daemon's log.
	level  *slog.LevelVar
	sighup <-chan os.Signal
}

// A reloader replaces a daemon's generation while it serves, whole or not at all. The goroutine of run
// does all of it: it handles signals, requests of the operator and changed files, and reports results to
// the log and to systemd.
type reloader struct {
	d        *Daemon
	settings settings
	requests chan chan error

	// done is closed when run returns.
	done chan struct{}

	// Only the goroutine of run uses the fields from here to closing.
	// watch watches nothing if files cannot be watched.
	watch watcher

	// files has the checksums of the files from which the active configuration, or a rejected one, was read.
	files map[string][sha256.Size]byte

	// unseen is set if files may have changed before their directories were watched.
	unseen bool

	// fileGone is set if the log says that the configuration file is missing.
	fileGone bool

	// closing counts what reloads have begun: earlier egress clients that are not closed yet, and caches that run.
	closing sync.WaitGroup

	// mu guards the fields below.
	mu         sync.Mutex
	ok, failed uint64
	lastOK     time.Time
	lastErr    error

	// fileErr says that the configuration file is missing; nil: it is not.
	fileErr error

	// left are the changes of the last reload that need a restart.
	left []config.Change
}

func newReloader(d *Daemon, from settings) *reloader {
	return &reloader{d: d, settings: from, requests: make(chan chan error), done: make(chan struct{})}
}

// Reload reads the configuration again and activates it, except for changes that need a restart. The error has one
// line for each mistake; then nothing has changed. If ctx ends, Reload returns its cause, and the reload continues.
func (d *Daemon) Reload(ctx context.Context) error {
	r := d.reloader
	if r == nil {
		return errors.New("this process cannot reload its configuration")
	}
	answer := make(chan error, 1)
	select {
	case r.requests <- answer:
	case <-r.done:
		return errors.New("shutting down")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Reloads returns how many reloads succeeded and failed, when the last one succeeded, and the error of the
// last one, or that the configuration file is missing; nil: neither.
func (d *Daemon) Reloads() (ok, failed uint64, lastOK time.Time, lastErr error) {
	r := d.reloader
	if r == nil {
		return 0, 0, time.Time{}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ok, r.failed, r.lastOK, cmp.Or(r.fileErr, r.lastErr)
}

// needRestart returns the keys whose values in the configuration file apply only after a restart.
func (d *Daemon) needRestart() (keys []string) {
	if r := d.reloader; r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, c := range r.left {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// run handles reloads until ctx ends. It returns when all that reloads have begun has ended, which is at the
// latest when over ends.
func (r *reloader) run(ctx, over context.Context) error {
	defer r.closing.Wait()
	defer close(r.done)
	r.start()
	defer r.watch.close()
	// Files may have changed since the start.
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	// first is the time of the first change that was not checked yet.
	var first time.Time
	soon := func() {
		if first.IsZero() {
			first = time.Now()
		}
		if time.Since(first) < maxDebounce {
			quiet.Reset(debounce)
		}
	}
	for {
		if r.unseen {
			r.unseen = false
			soon()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.settings.sighup:
			r.reload(over, "SIGHUP")
		case answer := <-r.requests:
			r.answerRequests(over, answer)
		case e := <-r.watch.events:
			if r.watch.relevant(e) {
				soon()
			}
		case err := <-r.watch.errors:
			r.d.log.Debug("file watching incomplete", "error", err)
			soon()
		case <-quiet.C:
			first = time.Time{}
			r.checkFiles(over)
		}
	}
}

// start watches the files that the active configuration was read from.
func (r *reloader) start() {
	notifyReady(r.status(nil))
	var err error
	if r.watch, err = newWatcher(); err != nil {
		r.d.log.Warn("file watching failed, send SIGHUP after a change", "error", err)
	}
	r.noteFiles(r.settings.files, r.settings.sum)
	r.watchFiles()
	// The loop in run checks the files at once.
	r.unseen = false
}

// noteFiles stores the checksums of the files that a configuration names, and of its own file, from before
// they were read.
func (r *reloader) noteFiles(named map[string][sha256.Size]byte, own [sha256.Size]byte) {
	r.files = map[string][sha256.Size]byte{}
	maps.Copy(r.files, named)
	if r.settings.file != "" {
		r.files[r.settings.file] = own
	}
}

// fileSums returns the checksums of the files that a configuration names.
func fileSums(cfg config.Config) map[string][sha256.Size]byte {
	files := map[string][sha256.Size]byte{}
	named := []string{cfg.ListenTLS.Cert, cfg.ListenTLS.Key, cfg.TLS.CACert, cfg.TLS.CAKey, cfg.TLS.CANext, cfg.Egress.ExtraCA}
	for _, file := range append(named, signingFiles(cfg)...) {
		if file != "" {
			files[file], _ = fileSum(file)
		}
	}
	return files
}

// watchFiles watches the files. If their directories were not watched while they were read, run checks them again.
func (r *reloader) watchFiles() {
	more, err := r.watch.watch(slices.Sorted(maps.Keys(r.files)))
	r.unseen = r.unseen || more
	if err != nil {
		r.d.log.Warn("file not watched, send SIGHUP after a change", "error", err)
	}
}

// fileSum returns the checksum of a file; empty: the file is empty, missing or not a regular file.
func fileSum(file string) (sum [sha256.Size]byte, empty bool) {
	info, err := os.Stat(file)
	// A pipe would block the read.
	if err != nil || !info.Mode().IsRegular() {
		return sum, true
	}
	f, err := os.Open(file)
	if err != nil {
		return sum, true
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxWatched))
	if err != nil || len(data) == 0 {
		return sum, true
	}
	return sha256.Sum256(data), false
}

// checkFiles reloads if a file has changed. A missing or empty file is taken as one that is about to be
// written.
func (r *reloader) checkFiles(over context.Context) {
	changed := false
	for file, was := range r.files {
		is, empty := fileSum(file)
		if empty && file == r.settings.file {
			if !r.fileGone {
				r.d.log.Warn("configuration file missing or empty, keeping the active configuration", "file", file)
			}
			r.fileGone = true
			r.setFileErr(errors.New("the configuration file " + file + " is missing or empty"))
			r.watchFiles()
			return
		}
		changed = changed || !empty && is != was
	}
	r.fileGone = false
	r.setFileErr(nil)
	if changed {
		r.reload(over, "a changed file")
		return
	}
	// Links on the way to the files may lead elsewhere now.
	r.watchFiles()
}

// answerRequests reloads once for all pending requests of the operator.
func (r *reloader) answerRequests(over context.Context, first chan<- error) {
	all := []chan<- error{first}
	for {
		select {
		case another := <-r.requests:
			all = append(all, another)
			continue
		default:
		}
		break
	}
	err := r.reload(over, "the operator")
	for _, answer := range all {
		answer <- err
	}
}

// reload reloads the configuration and logs the result.
func (r *reloader) reload(over context.Context, by string) error {
	notifyReloading()
	changes, told, err := r.apply(over)
	r.watchFiles()
	r.setResult(err)
	notifyReady(r.status(err))
	log := r.d.log.With("by", by)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			log.Error("configuration rejected, keeping the active one", "why", line)
		}
		return err
	}
	for i, c := range changes {
		if i == maxLogged {
			log.Info("further configuration keys changed", "keys", len(changes)-i)
			break
		}
		log.Info("configuration changed", "key", c.Key, "from", c.From, "to", c.To)
	}
	log = log.With("keys_changed", len(changes))
	if r.settings.file == "" {
		log.Info("certificates reloaded, no configuration file to read", told...)
	} else {
		log.Info("configuration reloaded", told...)
	}
	return nil
}

func (r *reloader) setResult(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastErr, r.fileErr = err, nil; err != nil {
		r.failed++
		return
	}
	r.ok++
	r.lastOK = time.Now()
}

// setLeft records and logs the changes that need a restart, unless they are the same as before.
func (r *reloader) setLeft(left []config.Change) {
	r.mu.Lock()
	known := slices.Equal(r.left, left)
	r.left = left
	r.mu.Unlock()
	if known {
		return
	}
	for _, c := range left {
		r.d.log.Warn("configuration key needs a restart, keeping the active value", "key", c.Key, "from", c.From, "to", c.To)
	}
}

// setFileErr records that the configuration file is missing; nil: it is not.
func (r *reloader) setFileErr(gone error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fileErr = gone
}

// status returns the status text for systemd.
func (r *reloader) status(err error) string {
	s := "serving on " + r.d.Addr()
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		s += "; the last reload was rejected: " + first
	} else if keys := r.d.needRestart(); len(keys) > 0 {
		s += "; need a restart: " + strings.Join(keys, ", ")
	}
	return s
}

// apply reads the configuration and activates all of it but what needs a restart, or nothing.
func (r *reloader) apply(over context.Context) (changes []config.Change, told []any, err error) {
	before := r.d.Active.Load()
	cfg := before.Cfg
	if r.settings.file != "" {
		// The checksum is taken before the file is read, so that a later change causes another reload.
		r.files[r.settings.file], _ = fileSum(r.settings.file)
		if cfg, err = r.settings.load(); err != nil {
			return nil, nil, err
		}
	}
	cfg, left := config.WithoutRestart(before.Cfg, cfg)
	if err := cfg.Check(); err != nil {
		// Alone, the rest is no valid configuration.
		return nil, nil, errors.Join(restarts(left), err)
	}
	changes = config.Changes(before.Cfg, cfg)
	r.noteFiles(fileSums(cfg), r.files[r.settings.file])
	if err := checkIdentity(cfg); err != nil {
		return nil, nil, err
	}
	next, err := r.d.newGeneration(cfg, before)
	if err != nil {
		return nil, nil, err
	}
	told = next.certChanges(before)
	r.setLeft(left)
	if len(changes) == 0 && len(told) == 0 {
		return nil, nil, nil
	}
	warnExpired(cfg, time.Time{}, time.Now(), r.d.log)
	last, err := r.d.activate(next, before)
	if err != nil {
		return nil, nil, err
	}
	r.settings.level.Set(cli.LevelOf(cfg.Log))
	r.d.configSum = r.files[r.settings.file]
	r.d.recordReload(changes, next, before)
	// The goroutines refer to these values alone, not to before, so that the rest of the old generation can be freed.
	if out := before.rules.Egress; out != next.rules.Egress {
		r.closing.Go(func() { await(over, last...); out.Close() })
	}
	if added, removed := next.tdmrep, before.tdmrep; added != removed {
		if added != nil {
			// The run of a cache never fails.
			r.closing.Go(func() { _ = added.run(over) })
		}
		if removed != nil {
			r.closing.Go(func() { await(over, last[0]); removed.stop() })
		}
	}
	return changes, told, nil
}

// unrecorded are the parts of the configuration on which neither decisions nor evidence depend.
var unrecorded = []string{"admin", "log"}

// recordReload records in the audit what a reload from before to f has changed, except what is unrecorded.
func (d *Daemon) recordReload(changes []config.Change, f, before *generation) {
	var keys []string
	for _, c := range changes {
		part, _, _ := strings.Cut(c.Key, ".")
		part, _, _ = strings.Cut(part, " ")
		if !slices.Contains(unrecorded, part) {
			keys = append(keys, c.Key)
		}
	}
	p := d.process(f)
	var err error
	if len(keys) > 0 {
		err = d.evidence.Reloaded(keys, p)
	}
	if f.rules.Authority != before.rules.Authority {
		err = errors.Join(err, d.evidence.Rotated("the CA for intercepted tunnels is another one", p))
	}
	if now := keyIDs(f.agents); now != keyIDs(before.agents) {
		err = errors.Join(err, d.evidence.Rotated("the keys that sign requests are: "+cmp.Or(now, "none"), p))
	}
	if err != nil {
		d.log.Warn("reload not recorded in the audit", "error", err)
	}
}

// restarts returns an error that names the changes that need a restart; nil: there are none.
func restarts(left []config.Change) error {
	var errs []error
	for _, c := range left {
		errs = append(errs, errors.New(c.String()))
	}
	return errors.Join(errs...)
}

// await waits until all channels are closed, or over ends.
func await(over context.Context, all ...<-chan struct{}) {
	for _, closed := range all {
		select {
		case <-closed:
		case <-over.Done():
			return
		}
	}
}
