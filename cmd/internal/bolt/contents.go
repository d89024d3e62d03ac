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

	// Guards sums.
	mu sync.Mutex

	// Owners, by the hash of the key; nil until the file was read.
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
	// Of the values that stay.
	bytes int64

	// The values that stay.
	kept []entryInfo

	// Keys of the values that are to be deleted.
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
func read(db *bbolt.DB, bucket []byte) (k bucketValues, err error) {
	err = db.View(func(tx *bbolt.Tx) error { return k.read(tx.Bucket(bucket), time.Now().Unix()) })
	return k, err
}

// read describes the values in b at the time now.
func (k *bucketValues) read(b *bbolt.Bucket, now int64) error {
	// Whether the entry of the last chunk does.
	stays := false
	return b.ForEach(func(key, value []byte) error {
		if isChunk(key) {
			if n := len(k.kept); stays && n > 0 {
				k.kept[n-1].size += int64(len(value))
				k.bytes += int64(len(value))
			}
			return nil
		}
		v := seal.Value(value)
		if len(v) < seal.Bytes {
			return damage("the value of %q", key)
		}
		if stays = v.Until() > now; !stays {
			k.removed = append(k.removed, bytes.Clone(key))
			return nil
		}
		k.kept = append(k.kept, entryInfo{key: bytes.Clone(key), until: v.Until(), size: int64(len(v))})
		k.bytes += int64(len(v))
		return nil
	})
}

// reduce selects values for removal until at most most bytes stay: values of the owners that have
// the most, and of one owner first those that expire soonest.
func (k *bucketValues) reduce(most int64) {
	if k.bytes <= most {
		return
	}
	has := make(map[uint32]int64)
	for _, h := range k.kept {
		has[h.owner] += h.size
	}
	each := fairShare(slices.Sorted(maps.Values(has)), most)
	slices.SortFunc(k.kept, byExpiry)
	k.kept = slices.DeleteFunc(k.kept, func(h entryInfo) bool {
		if has[h.owner] <= each {
			return false
		}
		has[h.owner] -= h.size
		k.bytes -= h.size
		k.removed = append(k.removed, h.key)
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
func (k *bucketValues) deleteRemoved(db *bbolt.DB, bucket []byte) error {
	slices.SortFunc(k.removed, bytes.Compare)
	for some := range slices.Chunk(k.removed, dropAtOnce) {
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
