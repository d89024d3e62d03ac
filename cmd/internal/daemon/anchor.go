package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tsa"
)

const (
	anchorLook  = time.Second      // how often the daemon looks whether an anchor is due
	anchorRetry = 10 * time.Minute // from a failure to the next attempt
	tsaTimeout  = time.Minute      // for the response of the time-stamp authority
)

// An anchorWriter writes anchors of the audit to one place.
type anchorWriter struct {
	place   string    // a file or a URL
	last    time.Time // when the newest anchor was written there
	retry   time.Time // before this time nothing is tried, since the last attempt failed; zero: it did not fail
	lastSeq uint64    // of the line whose anchor was written last
}

// runAnchors writes anchors to audit.anchor.file, and gets time-stamps from audit.anchor.tsa, until
// ctx ends.
func (d *Daemon) runAnchors(ctx context.Context) error {
	tick := time.NewTicker(anchorLook)
	defer tick.Stop()
	var toFile, stamped anchorWriter
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		o, end := d.Active.Load().Cfg.Audit.Anchor, d.evidence.OnDisk() // both places get the same anchor
		d.writeAnchor(&toFile, end, o.File, o.Every, func() string { return o.File }, func(a trail.Anchor) error { return appendAnchor(o.File, a) })
		d.writeAnchor(&stamped, end, o.TSA, o.Every, d.newestStamp, func(a trail.Anchor) error { return d.stamp(ctx, o.TSA, a) })
	}
}

// writeAnchor writes the anchor of end, the last line that the disk has, to place, unless that is "",
// if the newest one there is older than every. newest returns the path of a file that was written with it.
func (d *Daemon) writeAnchor(w *anchorWriter, end trail.Link, place string, every time.Duration, newest func() string, write func(trail.Anchor) error) {
	if place == "" {
		return
	}
	now := time.Now()
	if place != w.place {
		*w = anchorWriter{place: place}
		if info, err := os.Stat(newest()); err == nil && !info.ModTime().After(now) { // a clock that was wrong, or anybody, may have set a later time
			w.last = info.ModTime()
		}
	}
	if end.Seq == w.lastSeq || now.Before(w.last.Add(every)) || now.Before(w.retry) {
		return
	}
	switch err := write(end.Anchor()); {
	case err == nil:
		w.last, w.lastSeq, w.retry = now, end.Seq, time.Time{}
		d.log.Info("audit anchor written", "to", place, "anchor", end.Anchor())
	case w.retry.IsZero():
		d.log.Warn("audit anchor not written", "to", place, "error", err)
		fallthrough
	default:
		w.retry = now.Add(anchorRetry)
	}
}

// appendAnchor appends an anchor to a file, a line each. If the file ends within a line, as after a full
// disk, the anchor still has a line of its own.
func appendAnchor(file string, a trail.Anchor) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	line := a.String() + "\n"
	if endsWithinLine(file) {
		line = "\n" + line
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Sync(), f.Close())
}

// endsWithinLine reports whether a regular file ends without a line feed. It is false for a file that
// cannot be read.
func endsWithinLine(file string) bool {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
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
		case d.Active.Load().rules.Egress == client: // otherwise a reload may have closed it
			return err
		}
	}
}

// newestStamp returns the path of the newest time-stamp.
func (d *Daemon) newestStamp() string {
	all, err := tsa.List(filepath.Join(d.auditDir, cli.StampsName))
	if err != nil || len(all) == 0 {
		return ""
	}
	return all[len(all)-1].Path
}
