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
	"robotsproxy/proxy/egress"
)

const (
	settleTime = 200 * time.Millisecond // after the last change of a file it is read; editors write in several steps
	settleMost = 2 * time.Second        // after the first, however many follow
	maxTold    = 20                     // changes that are told of in the log, one line each
	maxWatched = 2 << 20                // octets of a file that are looked at for a change; none that is read may be larger
)

// Settings are where the configuration of a serve comes from, again and again.
type settings struct {
	file  string                        // "": there is none that could be read again
	load  func() (config.Config, error) // reads it, lays the flags over it, and checks it
	stamp [sha256.Size]byte             // of the file before it was first read
	named map[string][sha256.Size]byte  // the files that it names, before they were first read
	level *slog.LevelVar                // of the daemon's log
	hup   <-chan os.Signal
}

// A reloader changes a daemon while it serves, whole or not at all. One goroutine,
// run's, does all of it: it hears signals, the operator's requests, and of the files
// that were read, and tells in the log, and systemd, what has come of it.
type reloader struct {
	h        *Daemon
	from     settings
	notifier notifier
	asked    chan chan error
	ended    chan struct{} // closed when no more is done

	// run's own
	watch    *watcher                     // nil: files cannot be watched
	files    map[string][sha256.Size]byte // those that what is in force was read from, or would have been, as they were
	absent   bool                         // it was told that the file is gone
	partings sync.WaitGroup               // of the waits for earlier egress clients

	mu         sync.Mutex // guards what follows
	ok, failed uint64
	lastOK     time.Time
	lastErr    error
	gone       error // the file is; nil: it is there
}

func newReloader(h *Daemon, from settings) *reloader {
	return &reloader{h: h, from: from, asked: make(chan chan error), ended: make(chan struct{})}
}

// Reload reads the configuration anew and puts it in force. The error has a line for
// each thing that is wrong; then nothing has changed. When ctx ends it is not waited
// for any more.
func (h *Daemon) Reload(ctx context.Context) error {
	r := h.reloader
	if r == nil {
		return errors.New("nothing is reloaded here")
	}
	answer := make(chan error, 1)
	select {
	case r.asked <- answer:
	case <-r.ended:
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

// Reloads says how often the configuration was put in force anew since the start, how
// often that was refused, when it last was, and why it was not the last time, or that the
// file is gone; nil: it was.
func (h *Daemon) Reloads() (ok, failed uint64, lastOK time.Time, lastErr error) {
	r := h.reloader
	if r == nil {
		return 0, 0, time.Time{}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ok, r.failed, r.lastOK, cmp.Or(r.gone, r.lastErr)
}

// run reloads until ctx ends, and returns when what is left of before has ended, or
// over has.
func (r *reloader) run(ctx, over context.Context) error {
	defer r.partings.Wait()
	defer close(r.ended)
	r.begin()
	defer r.watch.close()
	quiet := time.NewTimer(0) // what changed since the start is looked for at once
	defer quiet.Stop()
	var first time.Time // of the changes that were not looked at yet
	soon := func() {
		if first.IsZero() {
			first = time.Now()
		}
		if time.Since(first) < settleMost {
			quiet.Reset(settleTime)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.from.hup:
			r.reload(over, "SIGHUP")
		case answer := <-r.asked:
			r.answer(over, answer)
		case e := <-r.watch.events():
			if r.watch.matters(e) {
				soon()
			}
		case err := <-r.watch.errors():
			r.h.log.Debug("files are not watched without gaps", "error", err)
			soon()
		case <-quiet.C:
			first = time.Time{}
			r.look(over)
		}
	}
}

// begin watches what the configuration in force was read from.
func (r *reloader) begin() {
	r.notifier.ready(r.status(nil))
	var err error
	if r.watch, err = newWatcher(); err != nil {
		r.h.log.Warn("files are not watched; after a change send SIGHUP", "error", err)
	}
	r.note(r.from.named, r.from.stamp)
	r.follow()
}

// note takes down how the files were that a configuration names, and its own, before they
// were read.
func (r *reloader) note(named map[string][sha256.Size]byte, own [sha256.Size]byte) {
	r.files = map[string][sha256.Size]byte{}
	maps.Copy(r.files, named)
	if r.from.file != "" {
		r.files[r.from.file] = own
	}
}

// filesOf tells how the files are that a configuration names.
func filesOf(cfg config.Config) map[string][sha256.Size]byte {
	files := map[string][sha256.Size]byte{}
	for _, file := range []string{cfg.ListenTLS.Cert, cfg.ListenTLS.Key, cfg.TLS.CACert, cfg.TLS.CAKey, cfg.Egress.ExtraCA} {
		if file != "" {
			files[file], _ = stamp(file)
		}
	}
	return files
}

func (r *reloader) follow() {
	var names []string
	for file := range r.files {
		names = append(names, file)
	}
	slices.Sort(names)
	if err := r.watch.follow(names); err != nil {
		r.h.log.Warn("a file is not watched; after a change send SIGHUP", "error", err)
	}
}

// stamp tells whether a file has changed; empty: there is nothing in it, or no file.
func stamp(file string) (sum [sha256.Size]byte, empty bool) {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() { // a pipe would be waited for
		return sum, true
	}
	f, err := os.Open(file)
	if err != nil {
		return sum, true
	}
	defer f.Close()
	octets, err := io.ReadAll(io.LimitReader(f, maxWatched))
	if err != nil || len(octets) == 0 {
		return sum, true
	}
	return sha256.Sum256(octets), false
}

// look reloads where a file is another than it was. One that is not there, or empty,
// is about to be written.
func (r *reloader) look(over context.Context) {
	changed := false
	for file, was := range r.files {
		is, empty := stamp(file)
		if empty && file == r.from.file {
			if !r.absent {
				r.h.log.Warn("the configuration file is gone or empty; what was in it stays in force", "file", file)
			}
			r.absent = true
			r.miss(errors.New("the configuration file " + file + " is gone or empty"))
			r.follow()
			return
		}
		changed = changed || !empty && is != was
	}
	r.absent = false
	r.miss(nil)
	if changed {
		r.reload(over, "a changed file")
		return
	}
	r.follow() // the names may lead elsewhere
}

// answer reloads once for all who ask.
func (r *reloader) answer(over context.Context, first chan<- error) {
	all := []chan<- error{first}
	for {
		select {
		case another := <-r.asked:
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

// reload does it, and tells of it.
func (r *reloader) reload(over context.Context, by string) error {
	r.notifier.reloading()
	changes, told, err := r.renew(over)
	r.follow()
	r.keep(err)
	r.notifier.ready(r.status(err))
	log := r.h.log.With("by", by)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			log.Error("the configuration is not reloaded; the one in force stays", "why", line)
		}
		return err
	}
	for i, c := range changes {
		if i == maxTold {
			log.Info("more of the configuration is changed", "keys", len(changes)-i)
			break
		}
		log.Info("the configuration is changed", "key", c.Key, "from", c.From, "to", c.To)
	}
	what := "the configuration is reloaded"
	if r.from.file == "" {
		what = "only certificates are read anew, as there is no configuration file to read again"
	}
	if len(changes) == 0 && len(told) == 0 {
		what += "; nothing has changed"
	}
	log.Info(what, told...)
	return nil
}

func (r *reloader) keep(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastErr, r.gone = err, nil; err != nil {
		r.failed++
		return
	}
	r.ok++
	r.lastOK = time.Now()
}

// miss keeps that the file is gone; nil: it is there.
func (r *reloader) miss(gone error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = gone
}

// status is what systemd shows.
func (r *reloader) status(err error) string {
	s := "serving on " + r.h.Addr()
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		s += "; the last reload was refused: " + first
	}
	return s
}

// renew reads the configuration and puts it in force, whole or not at all.
func (r *reloader) renew(over context.Context) (changes []config.Change, told []any, err error) {
	before := r.h.Now.Load()
	cfg := before.Cfg
	if r.from.file != "" {
		r.files[r.from.file], _ = stamp(r.from.file) // before it is read: what comes later is another change
		if cfg, err = r.from.load(); err != nil {
			return nil, nil, err
		}
	}
	changes = config.Changes(before.Cfg, cfg)
	if err := takesRestart(changes); err != nil {
		return nil, nil, err
	}
	r.note(filesOf(cfg), r.files[r.from.file])
	if err := refusesAll(cfg); err != nil {
		return nil, nil, err
	}
	next, err := r.h.make(cfg, before)
	if err != nil {
		return nil, nil, err
	}
	told = next.told(before)
	if len(changes) == 0 && len(told) == 0 {
		return nil, nil, nil
	}
	tellOver(cfg, r.h.log)
	last, err := r.h.use(next, before)
	if err != nil {
		return nil, nil, err
	}
	r.from.level.Set(cli.LevelOf(cfg.Log))
	if last != nil {
		out := before.rules.Egress // and not all else of before, for as long as that takes
		r.partings.Go(func() { closeAfter(over, out, last) })
	}
	return changes, told, nil
}

// takesRestart names the changes that only another process can go by.
func takesRestart(changes []config.Change) error {
	var errs []error
	for _, c := range changes {
		if c.Restart {
			errs = append(errs, errors.New(c.String()))
		}
	}
	return errors.Join(errs...)
}

// closeAfter closes an egress client when its last requests have ended, or all has.
func closeAfter(over context.Context, d *egress.Client, last []<-chan struct{}) {
	defer d.Close()
	for _, ended := range last {
		select {
		case <-ended:
		case <-over.Done():
			return
		}
	}
}
