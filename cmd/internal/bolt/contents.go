package bolt

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"robotsproxy/cmd/internal/seal"
)

// dropAtOnce is how many values are taken out of the file in one commit.
const dropAtOnce = 5000

// A keyIndex knows which keys are in the file and whose share they count against. It stores hashes, so
// it may take a missing key for a present one. A million keys take some 20 MiB. The zero value knows
// nothing: it lacks no key.
type keyIndex struct {
	seed maphash.Seed

	// mu guards sums, which has the owners by the hash of the key. It is nil until the file was read.
	mu   sync.Mutex
	sums map[uint64]uint32
}

// add adds a key of owner; 0 leaves the key to the owner that it has.
func (k *keyIndex) add(key []byte, owner uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sums == nil {
		return
	}
	sum := maphash.Bytes(k.seed, key)
	k.sums[sum] = cmp.Or(owner, k.sums[sum])
}

// lacks reports whether key is certainly not in the file.
func (k *keyIndex) lacks(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, has := k.sums[maphash.String(k.seed, key)]
	return k.sums != nil && !has
}

// fillOwners sets the owners of all values.
func (k *keyIndex) fillOwners(all []entryInfo) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range all {
		all[i].owner = k.sums[maphash.Bytes(k.seed, all[i].key)]
	}
}

// replace makes the keys of all, with their present owners, the only known ones.
func (k *keyIndex) replace(all []entryInfo) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sums := make(map[uint64]uint32, len(all))
	for i := range all {
		sum := maphash.Bytes(k.seed, all[i].key)
		sums[sum] = k.sums[sum]
	}
	k.sums = sums
}

// bucketValues describes the values in a bucket.
type bucketValues struct {
	// kept are the values that stay, and bytes is their size.
	kept  []entryInfo
	bytes int64

	// removed are the keys of the values that are to be deleted.
	removed [][]byte
}

// An entryInfo describes a value that has not expired.
type entryInfo struct {
	key   []byte
	until int64
	size  int64
	owner uint32
}

// byExpiry compares the expiry of two values.
func byExpiry(a, b entryInfo) int { return cmp.Compare(a.until, b.until) }

// read describes the values in a bucket.
func read(db *bbolt.DB, bucket []byte) (v bucketValues, err error) {
	err = db.View(func(tx *bbolt.Tx) error { return v.read(tx.Bucket(bucket), time.Now().Unix()) })
	return v, err
}

// read describes the values in b at the time now.
func (v *bucketValues) read(b *bbolt.Bucket, now int64) error {
	// stays says whether the last entry stays, to which the next chunks belong.
	stays := false
	return b.ForEach(func(key, value []byte) error {
		if isChunk(key) {
			if n := len(v.kept); stays && n > 0 {
				v.kept[n-1].size += int64(len(value))
				v.bytes += int64(len(value))
			}
			return nil
		}
		sealed := seal.Value(value)
		if len(sealed) < seal.Bytes {
			return damage("the value of %q", key)
		}
		if stays = sealed.Until() > now; !stays {
			v.removed = append(v.removed, bytes.Clone(key))
			return nil
		}
		v.kept = append(v.kept, entryInfo{key: bytes.Clone(key), until: sealed.Until(), size: int64(len(sealed))})
		v.bytes += int64(len(sealed))
		return nil
	})
}

// reduce selects values for removal until at most most bytes stay: values of the owners that have
// the most, and of one owner first those that expire soonest.
func (v *bucketValues) reduce(most int64) {
	if v.bytes <= most {
		return
	}
	has := make(map[uint32]int64)
	for _, h := range v.kept {
		has[h.owner] += h.size
	}
	each := fairShare(slices.Sorted(maps.Values(has)), most)
	slices.SortFunc(v.kept, byExpiry)
	v.kept = slices.DeleteFunc(v.kept, func(h entryInfo) bool {
		if has[h.owner] <= each {
			return false
		}
		has[h.owner] -= h.size
		v.bytes -= h.size
		v.removed = append(v.removed, h.key)
		return true
	})
}

// fairShare returns the most that each owner may keep so that all together keep at most most. sizes
// is what the owners have, in ascending order.
func fairShare(sizes []int64, most int64) int64 {
	for i, n := range sizes {
		each := most / int64(len(sizes)-i)
		if n > each {
			return each
		}
		most -= n
	}
	return math.MaxInt64
}

// deleteRemoved deletes the removed values, some in each commit: each loads a page into memory,
// unless its neighbour has.
func (v *bucketValues) deleteRemoved(db *bbolt.DB, bucket []byte) error {
	slices.SortFunc(v.removed, bytes.Compare)
	for some := range slices.Chunk(v.removed, dropAtOnce) {
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
