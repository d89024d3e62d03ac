package bolt

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// dropAtOnce is how many values are taken out of the file in one commit.
const dropAtOnce = 5000

// sweep removes what is of no more use. If three quarters of maxBytes are in use, it also
// removes other entries until about half is in use: first those of the clients that have
// the most, and of one client first those that would be of use for the shortest time. The
// space up to maxBytes is left for commits.
func (s *Store) sweep(db *bbolt.DB) error {
	if inUse(db) > s.maxBytes/4*3 {
		return s.sweepTo(db, s.maxBytes/2)
	}
	return s.sweepTo(db, s.maxBytes)
}

// sweepTo removes what is of no more use, and other entries if more than most bytes are in use.
func (s *Store) sweepTo(db *bbolt.DB, most int64) error {
	entries, err := read(db, robotsBucket)
	if err != nil {
		return err
	}
	if used := inUse(db); used > most {
		s.own(entries.held)
		entries.reduce(int64(float64(entries.octets) * float64(most) / float64(used))) // as much as their pages are to shrink
	}
	if err := cmp.Or(entries.drop(db, robotsBucket), s.sweepClocks(db)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	filed := s.newKeys()
	for i := range entries.held {
		filed.add(entries.held[i].key, s.filed.owner(entries.held[i].key))
	}
	s.filed = filed
	return nil
}

// sweepClocks removes the clocks that are of no more use. If that leaves more than
// maxClocks, it removes those that would be of use for longest, as a Pacer does.
func (s *Store) sweepClocks(db *bbolt.DB) error {
	clocks, err := read(db, clocksBucket)
	if err != nil {
		return err
	}
	if all := clocks.held; len(all) > s.maxClocks {
		slices.SortFunc(all, sooner)
		for _, h := range all[s.maxClocks:] {
			clocks.out = append(clocks.out, h.key)
		}
		clocks.held = all[:s.maxClocks]
	}
	if err := clocks.drop(db, clocksBucket); err != nil {
		return err
	}
	s.clocks = len(clocks.held)
	return nil
}

// own fills in the owners of entries.
func (s *Store) own(all []held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range all {
		all[i].owner = s.filed.owner(all[i].key)
	}
}

// thin leaves a quarter in use. It is for a file whose free pages are too scattered for a
// commit.
func (s *Store) thin(db *bbolt.DB) error { return s.sweepTo(db, s.maxBytes/4) }

// empty removes all entries. It is for a file in which thin cannot commit either, and may
// use the reserve.
func (s *Store) empty(db *bbolt.DB) error {
	s.log.Warn("state.db full, forgetting cached robots.txt files", "file", s.file)
	was := db.MaxSize
	db.MaxSize = int(s.maxBytes)
	defer func() { db.MaxSize = was }()
	err := db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket(robotsBucket); err != nil {
			return err
		}
		_, err := tx.CreateBucket(robotsBucket)
		return err
	})
	if err == nil {
		s.mu.Lock()
		s.filed = s.newKeys()
		s.mu.Unlock()
	}
	return err
}

// inUse gives how many bytes of the file are in use. The rest of the file is free for the
// next commits; the file does not shrink.
func inUse(db *bbolt.DB) (n int64) {
	_ = db.View(func(tx *bbolt.Tx) error { // fails where db is closed: nothing is in use
		n = tx.Size()
		return nil
	})
	st := db.Stats()
	return n - int64(st.FreePageN+st.PendingPageN)*int64(db.Info().PageSize)
}

// keys tell of most keys that they are not among them, and of others whose share they
// count against; the zero value of none. A million are some 20 MiB.
type keys struct {
	seed maphash.Seed
	sums map[uint64]uint32 // owners, by key
}

func (s *Store) newKeys() keys { return keys{s.seed, make(map[uint64]uint32)} }

// add adds a key of owner; 0 leaves the key to the owner that it has.
func (k keys) add(key []byte, owner uint32) {
	if k.sums == nil {
		return
	}
	sum := maphash.Bytes(k.seed, key)
	k.sums[sum] = cmp.Or(owner, k.sums[sum])
}

func (k keys) owner(key []byte) uint32 {
	if k.sums == nil {
		return 0
	}
	return k.sums[maphash.Bytes(k.seed, key)]
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
	held   []held   // the values that stay
	out    [][]byte // keys of those that do not
}

// A held is a value that is still of use.
type held struct {
	key   []byte
	until int64
	size  int64
	owner uint32
}

// sooner compares until when two values are of use.
func sooner(a, b held) int { return cmp.Compare(a.until, b.until) }

// read reads what a bucket holds.
func read(db *bbolt.DB, bucket []byte) (k stock, err error) {
	err = db.View(func(tx *bbolt.Tx) error { return k.read(tx.Bucket(bucket), time.Now().Unix()) })
	return k, err
}

// read reads the values of b, as they are at now.
func (k *stock) read(b *bbolt.Bucket, now int64) error {
	stays := false // whether the entry of the last chunk does
	return b.ForEach(func(key, value []byte) error {
		if isChunk(key) {
			if n := len(k.held); stays && n > 0 {
				k.held[n-1].size += int64(len(value))
				k.octets += int64(len(value))
			}
			return nil
		}
		v := sealed(value)
		if len(v) < sealOctets {
			return damage("the value of %q", key)
		}
		if stays = v.until() > now; !stays {
			k.out = append(k.out, bytes.Clone(key))
			return nil
		}
		k.held = append(k.held, held{key: bytes.Clone(key), until: v.until(), size: int64(len(v))})
		k.octets += int64(len(v))
		return nil
	})
}

// reduce chooses values to remove until at most most bytes stay: values of the owners that
// have the most, and of one owner first those that are of use for the shortest time.
func (k *stock) reduce(most int64) {
	if k.octets <= most {
		return
	}
	has := make(map[uint32]int64)
	for _, h := range k.held {
		has[h.owner] += h.size
	}
	each := share(slices.Sorted(maps.Values(has)), most)
	slices.SortFunc(k.held, sooner)
	k.held = slices.DeleteFunc(k.held, func(h held) bool {
		if has[h.owner] <= each {
			return false
		}
		has[h.owner] -= h.size
		k.octets -= h.size
		k.out = append(k.out, h.key)
		return true
	})
}

// share gives the most that each owner may keep so that all together keep at most most.
// sizes is what the owners have, in ascending order.
func share(sizes []int64, most int64) int64 {
	for i, n := range sizes {
		each := most / int64(len(sizes)-i)
		if n > each {
			return each
		}
		most -= n
	}
	return math.MaxInt64
}

// drop takes out what does not stay, some at a time: each brings a page into memory,
// unless its neighbour has.
func (k *stock) drop(db *bbolt.DB, bucket []byte) error {
	slices.SortFunc(k.out, bytes.Compare)
	for some := range slices.Chunk(k.out, dropAtOnce) {
		if err := db.Update(func(tx *bbolt.Tx) error {
			for _, key := range some {
				if err := dropChunks(tx.Bucket(bucket), key, 0); err != nil {
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
