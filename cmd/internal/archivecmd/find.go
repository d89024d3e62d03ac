package archivecmd

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/archive/warc"
)

// byURL finds the newest capture of a URL that is not later than until, if until is not zero.
func (a archive) byURL(url string, until time.Time) (newest place, err error) {
	url, _, _ = strings.Cut(url, "#")
	if scheme, rest, _ := strings.Cut(url, "://"); !strings.Contains(rest, "/") {
		host, query, hasQuery := strings.Cut(rest, "?")
		if url = scheme + "://" + host + "/"; hasQuery {
			url += "?" + query
		}
	}
	url = warc.EscapeURL(url)
	var newestDate time.Time
	err = a.each(func(rec *warc.Record, at place) {
		if !rec.IsCapture() || rec.TargetURI() != url {
			return
		}
		date, err := rec.Date()
		if err == nil && !date.Before(newestDate) && (until.IsZero() || !date.After(until)) {
			newest, newestDate = at, date
		}
	})
	if newest.found() {
		return newest, nil
	}
	if !until.IsZero() {
		return newest, errors.Join(fmt.Errorf("no capture of %s up to %s", url, until.UTC().Format(time.RFC3339)), err)
	}
	return newest, errors.Join(fmt.Errorf("no capture of %s: robotsproxy archive index lists the URLs that the archive has", url), err)
}

// byID finds a record by its WARC-Record-ID, or a capture by the ID of its record in the audit.
func (a archive) byID(id string) (at place, err error) {
	uri := strings.ToLower(strings.Trim(id, "<>"))
	// about has the IDs of the records that metadata with the ID is about.
	var about []string
	err = a.each(func(rec *warc.Record, here place) {
		own := strings.ToLower(strings.Trim(rec.ID(), "<>"))
		if own == uri || own == "urn:uuid:"+uri {
			at = here
		} else if rec.Type() == warc.TypeMetadata && auditID(rec) == id {
			about = append(about, rec.All("WARC-Concurrent-To")...)
		}
	})
	if !at.found() && about != nil {
		err = a.each(func(rec *warc.Record, here place) {
			if rec.IsCapture() && slices.Contains(about, rec.ID()) {
				at = here
			}
		})
	}
	if !at.found() {
		gone := fmt.Errorf("no record %s: the proxy may have removed it (archive.max_age, archive.max_total_size), or audit erase", id)
		return at, errors.Join(gone, err)
	}
	return at, nil
}

// maxMetadata is how many bytes of a metadata record are read.
const maxMetadata = 64 << 10

// auditID returns the ID in the audit that a metadata record has; "": it has none.
func auditID(rec *warc.Record) string {
	// The reader returns an error of the block again for the next record.
	text, _ := io.ReadAll(io.LimitReader(rec.Block, maxMetadata))
	return warc.FieldOf(text, "id")
}

// original finds the record with the payload of a revisit: that which the revisit names, or else
// one of the same URL and time, or else any with the same digest.
func (a archive) original(revisit warc.Header) (best place, err error) {
	id, digest := revisit.Get("WARC-Refers-To"), revisit.Get("WARC-Payload-Digest")
	uri, date := revisit.Get("WARC-Refers-To-Target-URI"), revisit.Get("WARC-Refers-To-Date")
	rank := 0
	err = a.each(func(rec *warc.Record, at place) {
		if !rec.IsCapture() || rec.Type() == warc.TypeRevisit {
			return
		}
		here := 0
		switch {
		case id != "" && rec.ID() == id:
			here = 3
		case uri != "" && rec.TargetURI() == uri && rec.Get("WARC-Date") == date:
			here = 2
		case digest != "" && rec.Get("WARC-Payload-Digest") == digest:
			here = 1
		}
		if here > rank {
			rank, best = here, at
		}
	})
	if !best.found() {
		return best, errors.Join(
			fmt.Errorf("the payload is that of an earlier record, %s, which the archive does not have any more", humanize.Word(id)), err)
	}
	return best, nil
}

// read calls use with the record.
func (p place) read(use func(*warc.Record) error) error {
	for rec, err := range p.file.records(p.offset) {
		if err != nil {
			return err
		}
		if rec.ID() == p.id {
			if err := use(rec); err != nil {
				return p.file.wrap(err)
			}
			return nil
		}
	}
	return p.file.wrap(errors.New("the record is not there any more"))
}
