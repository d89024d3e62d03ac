package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/stops"
)

// A Process is the program that writes a trail, as the events about it describe it.
type Process struct {
	// Version is that of the program.
	Version string

	// Origin is that of its checkpoints of the trail; "": there are none.
	Origin string

	// Config is the SHA-256 of the configuration file in hex; "": there is none.
	Config string

	// Include says which requests have records, if not all have: blocked.
	Include string

	// CA is the SHA-256 of the CA's certificate (DER), in upper-case hex with colons.
	CA string
}

// event returns an event about the process, which began as p.
func (p Process) event(name, detail string) *event {
	return &event{Event: name, Detail: detail, Program: p.Version, Origin: p.Origin, Config: p.Config, Include: p.Include, CA: p.CA}
}

// maxIDs is how many requests one event names.
const maxIDs = 128

// maxKeys is how many keys of the configuration one event names.
const maxKeys = 20

// Start adds the event that the process has started, which says how the one before it ended. Unless Options.Sync is
// SyncNone, the disk has it when Start returns without an error. After that, [Log.Close] adds the event that the process
// has stopped, and [Log.Run] names the requests of the one before that have no records. Call it once, before Run.
func (l *Log) Start(p Process) error {
	e := p.event(trail.EventStart, "the proxy has started")
	switch at := l.previous.End().UTC().Format(time.RFC3339); {
	case !l.segment.regular:
	case !l.continues:
		e.Detail = "the proxy has started a new audit"
	case l.previous.Seq == 0:
		e.Detail = "the proxy has started; how the one before it ended is unknown, since its last line cannot be read"
	case l.previous.Event == trail.EventStop:
		e.Detail = fmt.Sprintf("the proxy has started; the one before it stopped in order at %s", at)
	default:
		e.Detail = fmt.Sprintf("the proxy has started; the one before it did not stop in order, and its last line is seq %d of %s",
			l.previous.Seq, at)
	}
	l.started.Store(true)
	if err := l.commit(l.addEvent(e)); err != nil {
		return err
	}
	// This also waits for the disk, so that OnDisk has the event.
	l.probe(true)
	return l.writeError()
}

// Reloaded adds the event that keys of the configuration have changed. It names the first maxKeys of them.
func (l *Log) Reloaded(keys []string, p Process) error {
	e := p.event(trail.EventReload, "the configuration was reloaded: "+humanize.Count(len(keys), "key"))
	e.Keys = keys[:min(len(keys), maxKeys)]
	return l.commit(l.addEvent(e))
}

// Rotated adds the event that the CA, or a key that signs requests, is another one. detail describes it.
func (l *Log) Rotated(detail string, p Process) error {
	return l.commit(l.addEvent(p.event(trail.EventRotated, detail)))
}

// BackOffEnded adds the event that an operator has ended the back-off of a host.
func (l *Log) BackOffEnded(host string) error {
	return l.commit(l.addEvent(&event{Event: trail.EventBackOffEnded, Detail: "an operator ended the back-off of " + host, Host: host}))
}

// Pause adds the event that an operator has begun or, if p has ended, ended a pause.
func (l *Log) Pause(p stops.Stop) error {
	e := event{Event: trail.EventPaused, Host: p.Host, Reason: p.Reason, Until: p.Until, By: p.By}
	what := cmp.Or(p.Host, "all hosts")
	switch {
	case p.Ended:
		e.Event, e.Until, e.Detail = trail.EventResumed, time.Time{}, "an operator ended the pause of "+what
	case p.Until.IsZero():
		e.Detail = fmt.Sprintf("an operator paused requests to %s: %s", what, p.Reason)
	default:
		e.Detail = fmt.Sprintf("an operator paused requests to %s until %s: %s", what, p.Until.UTC().Format(time.RFC3339), p.Reason)
	}
	return l.commit(l.addEvent(&e))
}

// CooledDown adds the event that one client, or all, are stopped at a host for a time because it refuses requests.
func (l *Log) CooledDown(s stops.Stop) error {
	e := event{Event: trail.EventCoolDown, Host: s.Host, Reason: s.StatusText(), Until: s.Until}
	who := "all clients"
	if s.Client != "" {
		e.Client, who = l.options.Load().clientName(s.Client), "one client"
	}
	until := s.Until.UTC().Format(time.RFC3339)
	e.Detail = fmt.Sprintf("%s refused requests in a row (%s): %s may not send there until %s", s.Host, e.Reason, who, until)
	return l.commit(l.addEvent(&e))
}

// findUnfinished adds the events that name the requests of the previous process that have no records. Until it has, a
// crash leaves the search to the next process (End.Open).
func (l *Log) findUnfinished(ctx context.Context) error {
	if !l.started.Load() {
		return nil
	}
	if from := l.opened.Known.Open; !l.continues || from > l.lastFound || from == 0 && l.previous.Event == trail.EventStop {
		l.searched.Store(true)
		return nil
	}
	ids, err := trail.Unfinished(ctx, l.opened.File, l.opened.Known.Open, l.lastFound)
	for _, e := range unfinished(ids, "the proxy before this one ended") {
		err = errors.Join(err, l.writeEvent(e))
	}
	switch {
	case err == nil:
		l.searched.Store(true)
	case ctx.Err() == nil:
		l.opened.Log.Warn("audit not searched for requests without a record", "file", l.opened.File, "error", err)
	}
	return nil
}

// unfinished returns the events that name requests that have no records, because a process has ended as what says.
func unfinished(ids []string, what string) (all []*event) {
	for some := range slices.Chunk(ids, maxIDs) {
		all = append(all, &event{
			Event: trail.EventUnfinished, Count: int64(len(ids)), IDs: some,
			Detail: fmt.Sprintf("%s while %s under way, which have no records", what, humanize.Count(len(ids), "request")),
		})
	}
	return all
}

// chainStop adds the event that the process has stopped, after those about the requests that have not ended. The caller
// holds l.mu.
func (l *Log) chainStop() {
	if !l.started.Load() {
		return
	}
	for _, e := range unfinished(slices.Sorted(maps.Keys(l.open)), "the proxy stops") {
		l.chain(e)
	}
	l.chain(&event{Event: trail.EventStop, Detail: "the proxy stops in order"})
}
