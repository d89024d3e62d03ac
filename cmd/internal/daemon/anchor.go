package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tsa"
	"robotsproxy/policy/osfile"
)

const (
	anchorLook  = time.Second      // how often the daemon looks whether an anchor is due
	anchorRetry = 10 * time.Minute // from a failure to the next attempt
	tsaTimeout  = time.Minute      // for the response of the time-stamp authority
)

// An anchorWriter writes anchors of the audit to one place: the file, or the time-stamp authority. One goroutine
// writes, and any number may read the state.
type anchorWriter struct {
	// placeIn returns the path or URL; "": no anchors are written.
	placeIn func(config.Anchor) string

	// newest returns when the newest anchor was written to a place, as far as the place shows; zero: unknown.
	newest func(place string) time.Time
	write  func(ctx context.Context, place string, a trail.Anchor) error

	// limit bounds a call of write.
	limit time.Duration
	disk  osfile.Watch

	// retry is the time of the next attempt after a failed one; zero: the last attempt did not fail.
	retry time.Time

	// lastSeq is the number of the line whose anchor was written last.
	lastSeq uint64

	// mu guards the fields below.
	mu    sync.Mutex
	place string

	// last is when the newest anchor was written; zero: unknown.
	last time.Time

	// err is why an anchor that is due was not written; nil: none is due.
	err error
}

// newAnchorWriters returns the writers for audit.anchor.file and audit.anchor.tsa.
func (d *Daemon) newAnchorWriters() []*anchorWriter {
	return []*anchorWriter{{
		placeIn: func(o config.Anchor) string { return o.File },
		newest:  d.newestInFile,
		write:   func(_ context.Context, file string, a trail.Anchor) error { return appendAnchor(file, a) },
		limit:   osfile.MaxSync,
	}, {
		placeIn: func(o config.Anchor) string { return o.TSA },
		newest:  func(string) time.Time { return d.newestStamp() },
		write:   d.stamp,
		limit:   tsaTimeout + osfile.MaxSync,
	}}
}

// run writes the anchors that are due until ctx ends.
func (w *anchorWriter) run(ctx context.Context, d *Daemon) error {
	tick := time.NewTicker(anchorLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			w.step(ctx, d, d.Active.Load().Cfg.Audit.Anchor, now)
		}
	}
}

// step writes the anchor of the last line that the disk has, if one is due. While an earlier attempt hangs, it does nothing.
func (w *anchorWriter) step(ctx context.Context, d *Daemon, o config.Anchor, now time.Time) {
	place, end := w.placeIn(o), d.evidence.OnDisk()
	if w.disk.Err() != nil {
		return
	}
	if place != w.place {
		w.begin(place, now)
	}
	if place == "" || end.Seq == w.lastSeq || now.Before(w.last.Add(o.Every)) || now.Before(w.retry) {
		return
	}
	err := w.disk.Do(w.limit, func() error { return w.write(ctx, place, end.Anchor()) })
	switch {
	case err == nil:
		w.lastSeq, w.retry = end.Seq, time.Time{}
		d.log.Info("audit anchor written", "to", place, "anchor", end.Anchor())
		w.setState(place, now, nil)
		return
	case w.retry.IsZero():
		d.log.Warn("audit anchor not written", "to", place, "error", err)
	}
	w.retry = now.Add(anchorRetry)
	w.setState(place, w.last, err)
}

// begin begins to write to another place.
func (w *anchorWriter) begin(place string, now time.Time) {
	var last time.Time
	if place != "" {
		found := make(chan time.Time, 1)
		if w.disk.Do(osfile.MaxSync, func() error { found <- w.newest(place); return nil }) == nil {
			last = <-found
		}
	}
	if last.After(now) {
		// A clock was wrong when the anchor was written.
		last = time.Time{}
	}
	w.lastSeq, w.retry = 0, time.Time{}
	w.setState(place, last, nil)
}

func (w *anchorWriter) setState(place string, last time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.place, w.last, w.err = place, last, err
}

// state returns where anchors are written, when the newest one was, and why one that is due was not.
func (w *anchorWriter) state() (place string, last time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.place, w.last, w.err
}

// warning returns what to tell the operator if an anchor is overdue, else "".
func (w *anchorWriter) warning() string {
	place, last, err := w.state()
	if err == nil {
		return ""
	}
	since := "no anchor was written there yet"
	if !last.IsZero() {
		since = "the newest one there is of " + last.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("an audit anchor is overdue at %s, %s: %v", place, since, err)
}

// checkAnchorFile returns an error if audit.anchor.file is not a regular file. If the disk hangs, it gives up after
// osfile.MaxWrite and returns nil.
func checkAnchorFile(file string) error {
	if file == "" {
		return nil
	}
	err := new(osfile.Watch).Do(osfile.MaxWrite, func() error {
		if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("audit.anchor.file: %s: not a regular file", file)
		}
		return nil
	})
	if errors.Is(err, osfile.ErrHangs) {
		// The operator will learn that anchors are overdue.
		return nil
	}
	return err
}

// appendAnchor appends an anchor to a file, a line each. If the file ends within a line, as after a full
// disk, the anchor still has a line of its own.
func appendAnchor(file string, a trail.Anchor) error {
	if err := checkAnchorFile(file); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	line := a.String() + "\n"
	if info, err := f.Stat(); err == nil && osfile.EndsWithinLine(f, info.Size()) {
		line = "\n" + line
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Sync(), f.Close())
}

// newestInFile returns the time of the line in the audit to which the last anchor in a file belongs. The time of the
// file says nothing, since anybody can change it.
func (d *Daemon) newestInFile(file string) time.Time {
	if checkAnchorFile(file) != nil {
		return time.Time{}
	}
	f, err := os.Open(file)
	if err != nil {
		return time.Time{}
	}
	defer f.Close()
	// most is how many bytes of the end of the file are read. An anchor has at most 85.
	const most = 1 << 10
	info, err := f.Stat()
	if err != nil {
		return time.Time{}
	}
	from := max(0, info.Size()-most)
	end, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return time.Time{}
	}
	lines := strings.Fields(string(end))
	if len(lines) == 0 {
		return time.Time{}
	}
	a, err := trail.ParseAnchor(lines[len(lines)-1])
	if err != nil {
		return time.Time{}
	}
	// After an error, the time is zero.
	at, _ := trail.TimeOf(d.auditFile, a)
	return at
}

// stamp gets a time-stamp over an anchor, and keeps it in the state directory.
func (d *Daemon) stamp(ctx context.Context, url string, a trail.Anchor) error {
	ctx, cancel := context.WithTimeout(ctx, tsaTimeout)
	defer cancel()
	for {
		client := d.Active.Load().rules.Egress
		response, err := tsa.Request(ctx, client, url, a)
		switch {
		case err == nil:
			return tsa.Save(filepath.Join(d.auditDir, cli.StampsName), a, response)
		// If the client is another one now, a reload has closed the one that failed.
		case d.Active.Load().rules.Egress == client:
			return err
		}
	}
}

// newestStamp returns the time that the newest time-stamp states.
func (d *Daemon) newestStamp() time.Time {
	all, err := tsa.List(filepath.Join(d.auditDir, cli.StampsName))
	if err != nil || len(all) == 0 {
		return time.Time{}
	}
	newest := all[len(all)-1]
	response, err := os.ReadFile(newest.Path)
	if err != nil {
		return time.Time{}
	}
	// Without root certificates, Verify returns the time with an error that says so.
	at, _ := tsa.Verify(response, newest.Anchor, nil)
	return at
}
