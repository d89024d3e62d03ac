package daemon

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"robotsproxy/policy/stops"
)

// savedStops is what the store has of the stops.
type savedStops struct {
	// mu guards the fields below.
	mu sync.Mutex

	// last is the number of the last change that was saved.
	last uint64

	// keys are those of the stops in the store, see stops.Key.String.
	keys map[string]bool

	// damaged is the number of damaged files, each of which was replaced by an empty one.
	damaged uint64
}

// restoreStops makes the table of stops, with those of the process before this one.
func (d *Daemon) restoreStops() {
	d.stops, d.savedStops.keys = stops.New(), map[string]bool{}
	if d.store == nil {
		return
	}
	d.savedStops.damaged = d.store.Stats().Damaged
	for key, text := range d.store.Stops() {
		d.savedStops.keys[key] = true
		s, err := stops.Read(text)
		if err != nil {
			d.log.Warn("stop of the last process not understood, forgetting it", "key", key, "error", err)
			continue
		}
		d.stops.Merge(s)
	}
}

var errNoRoom = errors.New("state.db cannot be written, and too many changes wait")

// saveStops saves the stops that have changed. Any number of goroutines may call it.
func (d *Daemon) saveStops() error {
	if d.store == nil {
		return nil
	}
	saved := &d.savedStops
	saved.mu.Lock()
	defer saved.mu.Unlock()
	if damaged := d.store.Stats().Damaged; damaged != saved.damaged {
		saved.last, saved.damaged = 0, damaged
	}
	changed, last := d.stops.Changes(saved.last, false)
	if last == saved.last {
		return nil
	}
	texts := map[string][]byte{}
	for _, s := range changed {
		texts[s.Key().String()] = s.Text()
	}
	left := d.stops.Keys()
	for key := range saved.keys {
		if !left[key] {
			texts[key] = nil
		}
	}
	if !d.store.SaveStops(texts) {
		return errNoRoom
	}
	saved.last, saved.keys = last, left
	return nil
}

// cooledDown logs, stores and records a cool-down that has begun.
func (d *Daemon) cooledDown(s stops.Stop) {
	log := d.log.With("host", s.Host, "client", cmp.Or(s.Client, "all"))
	log.Info("host refuses requests, cool-down begun", "statuses", s.Statuses, "until", s.Until.UTC().Format(time.RFC3339))
	if err := errors.Join(d.syncStops(context.Background()), d.evidence.CooledDown(s)); err != nil {
		log.Error("cool-down not stored or recorded", "error", err)
	}
}

// syncLimit is how long an operator waits until the disk has a pause.
const syncLimit = 5 * time.Second

// syncStops saves the stops, and returns when the disk has them.
func (d *Daemon) syncStops(ctx context.Context) error {
	if err := d.saveStops(); err != nil || d.store == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, syncLimit)
	defer cancel()
	return d.store.SyncStops(ctx)
}
