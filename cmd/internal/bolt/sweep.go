package bolt

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// dropAtOnce is how many values are taken out of the file in one commit.
const dropAtOnce = 5000

// sweep takes out what is over, and where that leaves more than maxBytes, the
// entries that would be of use for the shortest time, down to nine tenths.
func (s *Store) sweep(db *bbolt.DB) error {
	entries := stock{keys: newKeys()}
	err := db.View(func(tx *bbolt.Tx) error {
		now := time.Now().Unix()
		if err := entries.take(tx.Bucket(robotsBucket), now); err != nil {
			return err
		}
		if entries.octets > s.maxBytes {
			return entries.reduce(tx.Bucket(robotsBucket), now, s.maxBytes/10*9)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := cmp.Or(entries.drop(db, robotsBucket), s.sweepClocks(db)); err != nil {
		return err
	}
	s.octets = entries.octets
	s.mu.Lock()
	s.filed = entries.keys
	s.mu.Unlock()
	return nil
}

// sweepClocks takes out the clocks that are over, and where that leaves more than
// maxClocks, those that would be of use for longest: of these a Pacer forgets as well.
func (s *Store) sweepClocks(db *bbolt.DB) error {
	var clocks stock
	err := db.View(func(tx *bbolt.Tx) error {
		b, now := tx.Bucket(clocksBucket), time.Now().Unix()
		if err := clocks.take(b, now); err != nil || clocks.values <= s.maxClocks {
			return err
		}
		all, err := heldIn(b, now)
		for _, h := range slices.Backward(all) {
			if clocks.values <= s.maxClocks {
				break
			}
			clocks.out = append(clocks.out, h.key)
			clocks.values--
		}
		return err
	})
	if err == nil {
		err = clocks.drop(db, clocksBucket)
	}
	if err == nil {
		s.clocks = clocks.values
	}
	return err
}

// keys tell of most keys that they are not among them; the zero value of none. A
// million are some 20 MiB.
type keys struct {
	seed maphash.Seed
	sums map[uint64]struct{}
}

func newKeys() keys { return keys{maphash.MakeSeed(), make(map[uint64]struct{})} }

func (k keys) add(key []byte) {
	if k.sums != nil {
		k.sums[maphash.Bytes(k.seed, key)] = struct{}{}
	}
}

func (k keys) lacks(key string) bool {
	if k.sums == nil {
		return false
	}
	_, has := k.sums[maphash.String(k.seed, key)]
	return !has
}

// A stock is what a bucket holds.
type stock struct {
	octets int64    // of the values that stay
	values int      // that stay
	out    [][]byte // keys of those that do not
	keys   keys     // of all
}

func (k *stock) take(b *bbolt.Bucket, now int64) error {
	return b.ForEach(func(key, value []byte) error {
		v := sealed(value)
		if len(v) < sealOctets {
			return damage("the value of %q", key)
		}
		k.keys.add(key)
		if v.until() <= now {
			k.out = append(k.out, bytes.Clone(key))
		} else {
			k.octets += int64(len(v))
			k.values++
		}
		return nil
	})
}

// A held value is one that is not over.
type held struct {
	key   []byte
	until int64
	size  int64
}

// heldIn gives the values of a bucket that are not over, the one that is over soonest
// first.
func heldIn(b *bbolt.Bucket, now int64) (all []held, err error) {
	err = b.ForEach(func(key, value []byte) error {
		if v := sealed(value); v.until() > now {
			all = append(all, held{bytes.Clone(key), v.until(), int64(len(v))})
		}
		return nil
	})
	slices.SortFunc(all, func(a, b held) int { return cmp.Compare(a.until, b.until) })
	return all, err
}

// reduce counts out what is over soonest until at most so many octets stay.
func (k *stock) reduce(b *bbolt.Bucket, now, most int64) error {
	all, err := heldIn(b, now)
	for _, h := range all {
		if k.octets <= most {
			break
		}
		k.out = append(k.out, h.key)
		k.octets -= h.size
	}
	return err
}

// drop takes out what does not stay, some at a time: each brings a page into memory,
// unless its neighbour has.
func (k *stock) drop(db *bbolt.DB, bucket []byte) error {
	slices.SortFunc(k.out, bytes.Compare)
	for some := range slices.Chunk(k.out, dropAtOnce) {
		if err := db.Update(func(tx *bbolt.Tx) error {
			for _, key := range some {
				if err := tx.Bucket(bucket).Delete(key); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
