package bolt

import (
	"cmp"
	"container/list"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

const (
	// maxPending is how many octets of entries are gathered while the disk takes
	// none; over it the oldest are lost.
	maxPending = 32 << 20

	// maxCommit is how many octets of entries are written at once: who looks up waits
	// for that, and each brings a page into memory.
	maxCommit = 4 << 20

	// maxClocks is how many clocks are gathered: as many as a Pacer remembers. The
	// ones beyond it are lost.
	maxClocks = 1 << 18

	// clockSlack is the divisor of Options.MaxClocks that gives how many clocks the file
	// may have beyond them: a quarter, so that not each commit has to look through all.
	clockSlack = 4

	// itemOverhead is what gathering an entry costs beside its octets.
	itemOverhead = 200
)

// A sealed value is one as it is in the file: a checksum of what follows and of
// its key, until when it is of use in seconds since 1970, and the octets.
type sealed []byte

const sealOctets = 4 + 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func seal(key string, octets []byte, until time.Time) sealed {
	v := make(sealed, sealOctets, sealOctets+len(octets))
	binary.BigEndian.PutUint64(v[4:], uint64(until.Unix()))
	v = append(v, octets...)
	binary.BigEndian.PutUint32(v, v.sum(key))
	return v
}

func (v sealed) sum(key string) uint32 {
	return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, v[4:])
}

// whole says whether v is as it was sealed for key.
func (v sealed) whole(key string) bool {
	return len(v) >= sealOctets && binary.BigEndian.Uint32(v) == v.sum(key)
}

func (v sealed) until() int64 { return int64(binary.BigEndian.Uint64(v[4:])) }

// current gives a copy of the octets, nil where they are over, or there are none.
func (v sealed) current(now time.Time) []byte {
	if v == nil || v.until() <= now.Unix() {
		return nil
	}
	return append([]byte{}, v[sealOctets:]...)
}

// A batch is what is gathered for one commit.
type batch struct {
	entries map[string]*list.Element // of item
	order   *list.List               // the oldest first
	octets  int                      // of entries
	clocks  map[string]sealed
}

func newBatch() *batch {
	return &batch{entries: make(map[string]*list.Element), order: list.New(), clocks: make(map[string]sealed)}
}

type item struct {
	key   string
	value sealed
	owner uint32 // see Store.owner
}

func (i item) size() int { return len(i.key) + len(i.value) + itemOverhead }

func (b *batch) get(key string) (sealed, bool) {
	e := b.entries[key]
	if e == nil {
		return nil, false
	}
	return e.Value.(item).value, true
}

func (b *batch) add(key string, value sealed, owner uint32) {
	if e := b.entries[key]; e != nil {
		owner = cmp.Or(owner, e.Value.(item).owner)
		b.remove(e)
	}
	b.put(item{key, value, owner}, b.order.PushBack)
}

func (b *batch) put(i item, push func(any) *list.Element) {
	b.entries[i.key] = push(i)
	b.octets += i.size()
}

func (b *batch) remove(e *list.Element) {
	i := b.order.Remove(e).(item)
	delete(b.entries, i.key)
	b.octets -= i.size()
}

// part takes out the clocks, and the oldest entries until they have so many octets.
func (b *batch) part(octets int) *batch {
	p := newBatch()
	p.clocks, b.clocks = b.clocks, p.clocks
	for b.order.Len() > 0 && p.octets < octets {
		oldest := b.order.Front()
		b.remove(oldest)
		p.put(oldest.Value.(item), p.order.PushBack)
	}
	return p
}

// addClock says whether there was room.
func (b *batch) addClock(key string, value sealed) bool {
	if _, known := b.clocks[key]; !known && len(b.clocks) == maxClocks {
		return false
	}
	b.clocks[key] = value
	return true
}

// addOlder adds what is in old and not in b, and says whether there was room for
// the clocks.
func (b *batch) addOlder(old *batch) bool {
	for e := old.order.Back(); e != nil; e = e.Prev() {
		if i := e.Value.(item); b.entries[i.key] == nil {
			b.put(i, b.order.PushFront)
		}
	}
	room := true
	for key, value := range old.clocks {
		if _, newer := b.clocks[key]; !newer {
			room = b.addClock(key, value) && room
		}
	}
	return room
}

// shrink takes the oldest entries out until at most so many octets are left, and
// says how many.
func (b *batch) shrink(most int) (lost int) {
	for b.octets > most {
		b.remove(b.order.Front())
		lost++
	}
	return lost
}

// write puts the batch into the file, and gives how many clocks are new in it.
func (b *batch) write(tx *bbolt.Tx) (added int, err error) {
	robots, clocks := tx.Bucket(robotsBucket), tx.Bucket(clocksBucket)
	for e := b.order.Front(); e != nil; e = e.Next() {
		i := e.Value.(item)
		if err := putEntry(robots, []byte(i.key), i.value); err != nil {
			return 0, err
		}
	}
	// In order: bbolt moves all keys of a page that come after a new one, and splits pages
	// only when it commits, so that any other order takes quadratic time.
	for _, key := range slices.Sorted(maps.Keys(b.clocks)) {
		if clocks.Get([]byte(key)) == nil {
			added++
		}
		if err := clocks.Put([]byte(key), b.clocks[key]); err != nil {
			return 0, err
		}
	}
	return added, nil
}
