package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"robotsproxy/policy/audit/trail"
)

// A Process is the program that writes a trail, as the events about it describe it.
type Process struct {
	Version string
	Config  string // SHA-256 of the configuration file in hex; "": there is none
	CA      string // fingerprint of the CA's certificate
}

// maxIDs is how many requests one event names.
const maxIDs = 128

// Start adds the event that the process has started, which says how the one before it ended, and waits until the disk
// has it. After that, [Log.Close] adds the event that the process has stopped, and Run finds out which requests
// of the one before have no records.
func (l *Log) Start(p Process) error {
	e := event{name: trail.EventStart, process: p}
	switch at := l.previous.End().UTC().Format(time.RFC3339); {
	case !l.segment.regular:
		e.detail = "the proxy has started"
	case l.previous.Seq == 0:
		e.detail = "the proxy has started a new audit"
	case l.previous.Event == trail.EventStop:
		e.detail = fmt.Sprintf("the proxy has started; the one before it stopped in order at %s", at)
	default:
		e.detail = fmt.Sprintf("the proxy has started; the one before it did not stop in order, and its last line is seq %d of %s", l.previous.Seq, at)
	}
	l.started.Store(true)
	if err := l.commit(l.addEvent(e)); err != nil {
		return err
	}
	l.probe(true) // also waits for the disk, so that OnDisk has the event
	return l.writeError()
}

// Reloaded adds the event that keys of the configuration have changed.
func (l *Log) Reloaded(keys []string, p Process) error {
	return l.commit(l.addEvent(event{name: trail.EventReload, detail: "the configuration was reloaded", keys: keys, process: p}))
}

// Rotated adds the event that the CA, or a key that signs requests, is another one. detail describes it.
func (l *Log) Rotated(detail string, p Process) error {
	return l.commit(l.addEvent(event{name: trail.EventRotated, detail: detail, process: p}))
}

// findUnfinished adds the events that name the requests of the previous process that have no records, if it did not stop
// in order.
func (l *Log) findUnfinished(ctx context.Context) error {
	if !l.started.Load() || !l.segment.regular || l.previous.Seq == 0 || l.previous.Event == trail.EventStop {
		return nil
	}
	ids, err := trail.Unfinished(ctx, l.opened.File, l.opened.Known.Open, l.previous.Seq)
	for first := 0; first < len(ids); first += maxIDs {
		e := event{name: trail.EventUnfinished, count: int64(len(ids)), ids: ids[first:min(first+maxIDs, len(ids))]}
		e.detail = fmt.Sprintf("the proxy before this one ended while %d requests or tunnels were under way, which have no records", len(ids))
		err = errors.Join(err, l.writeEvent(e))
	}
	if err != nil && ctx.Err() == nil {
		l.opened.Log.Warn("audit not searched for requests without a record", "file", l.opened.File, "error", err)
	}
	return nil
}
