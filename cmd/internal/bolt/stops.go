package bolt

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"robotsproxy/cmd/internal/seal"
)

// maxStops is how many stops can be pending, and how many are read from a file: more than a stops.Table has.
const maxStops = 1 << 15

// Stops returns the stops that Open found, by the keys that SaveStops got.
func (s *Store) Stops() map[string][]byte { return s.initial.stops }

// SaveStops stores stops, each in place of the one with its key, and removes those whose text is nil. It reports whether there was
// room: while the disk fails, so many may wait that there is none. Then it has stored nothing.
func (s *Store) SaveStops(texts map[string][]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending.stops)+len(s.writing.stops)+len(texts) > maxStops {
		return false
	}
	for key, text := range texts {
		s.pending.stops[key] = nil
		if text != nil {
			s.pending.stops[key] = seal.New(key, text, time.Time{})
		}
	}
	if len(texts) > 0 {
		s.wake.Set()
	}
	return true
}

// SyncStops waits until [Store.Run] has written all stops that were saved, or ctx ends. It then returns the error of ctx.
func (s *Store) SyncStops(ctx context.Context) error {
	for {
		s.mu.Lock()
		clean, next := len(s.pending.stops)+len(s.writing.stops) == 0, s.committed
		s.mu.Unlock()
		if clean {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// writeStops puts stops into the file.
func writeStops(tx *bbolt.Tx, stops map[string]seal.Value) error {
	bucket := tx.Bucket(stopsBucket)
	for _, key := range slices.Sorted(maps.Keys(stops)) {
		var err error
		if value := stops[key]; value != nil {
			err = bucket.Put([]byte(key), value)
		} else {
			err = bucket.Delete([]byte(key))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readStops reads the stops.
func (c *fileContents) readStops(tx *bbolt.Tx) error {
	bucket := tx.Bucket(stopsBucket)
	if bucket == nil {
		return nil
	}
	c.stops = make(map[string][]byte)
	return bucket.ForEach(func(key, value []byte) error {
		if !seal.Value(value).IsWhole(string(key)) {
			return damage("the stop %q", key)
		}
		if len(c.stops) < maxStops {
			c.stops[string(key)] = bytes.Clone(value[seal.Bytes:])
		}
		return nil
	})
}
