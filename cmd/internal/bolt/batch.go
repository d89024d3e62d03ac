package bolt

import (
	"cmp"
	"container/list"
	"maps"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"robotsproxy/cmd/internal/seal"
)

const (
	// maxPending limits the bytes of pending entries while the disk takes none; beyond it the oldest are
	// dropped.
	maxPending = 32 << 20

	// maxCommit is how many bytes of entries one commit writes: look-ups wait for it, and each entry loads
	// a page into memory.
	maxCommit = 4 << 20

	// maxClocks is how many clocks can be pending: as many as a Pacer remembers. Further ones are dropped. It holds for each of the
	// tables.
	maxClocks = 1 << 18

	// clockSlack is the divisor for the number of values that a table may have beyond Options.MaxClocks:
	// a quarter, so that not every commit has to read all of them.
	clockSlack = 4

	// deletionBytes is the maximum length in bytes of a value that only hides an older one, as a purge saves it.
	deletionBytes = seal.Bytes + 1

	// itemOverhead is the memory in bytes that a pending entry takes besides its own bytes.
	itemOverhead = 200
)

// A batch is the content of one commit.
type batch struct {
	// entries has the elements of order by key.
	entries map[string]*list.Element

	// order has items, the oldest first.
	order *list.List

	// bytes is the size of all items.
	bytes int

	// tables has the values of each of tables by key.
	tables [tableCount]map[string]seal.Value

	// audit is the AuditEnd; nil if it is unchanged.
	audit seal.Value

	// stops has a nil value for each stop to remove.
	stops map[string]seal.Value
}

func newBatch() *batch {
	b := &batch{entries: make(map[string]*list.Element), order: list.New(), stops: make(map[string]seal.Value)}
	for i := range b.tables {
		b.tables[i] = make(map[string]seal.Value)
	}
	return b
}

type item struct {
	key   string
	value seal.Value

	// owner is what Store.owner returned.
	owner uint32
}

func (i item) size() int { return len(i.key) + len(i.value) + itemOverhead }

func (b *batch) get(key string) (seal.Value, bool) {
	e := b.entries[key]
	if e == nil {
		return nil, false
	}
	return e.Value.(item).value, true
}

func (b *batch) add(key string, value seal.Value, owner uint32) {
	if e := b.entries[key]; e != nil {
		owner = cmp.Or(owner, e.Value.(item).owner)
		b.remove(e)
	}
	b.put(item{key, value, owner}, b.order.PushBack)
}

func (b *batch) put(i item, push func(any) *list.Element) {
	b.entries[i.key] = push(i)
	b.bytes += i.size()
}

func (b *batch) remove(e *list.Element) {
	i := b.order.Remove(e).(item)
	delete(b.entries, i.key)
	b.bytes -= i.size()
}

// part removes the values of tables, the AuditEnd, the stops, and the oldest entries of about size bytes, and returns them.
func (b *batch) part(size int) *batch {
	p := newBatch()
	p.tables, b.tables = b.tables, p.tables
	p.audit, b.audit = b.audit, nil
	p.stops, b.stops = b.stops, p.stops
	for b.order.Len() > 0 && p.bytes < size {
		oldest := b.order.Front()
		b.remove(oldest)
		p.put(oldest.Value.(item), p.order.PushBack)
	}
	return p
}

// addTo adds a value to a table, and reports whether there was room for it.
func (b *batch) addTo(table int, key string, value seal.Value) bool {
	if _, known := b.tables[table][key]; !known && len(b.tables[table]) == maxClocks {
		return false
	}
	b.tables[table][key] = value
	return true
}

// addOlder adds the values of old that b does not have, and reports whether there was room for those of tables.
func (b *batch) addOlder(old *batch) bool {
	for e := old.order.Back(); e != nil; e = e.Prev() {
		if i := e.Value.(item); b.entries[i.key] == nil {
			b.put(i, b.order.PushFront)
		}
	}
	if b.audit == nil {
		b.audit = old.audit
	}
	for key, value := range old.stops {
		if _, newer := b.stops[key]; !newer {
			b.stops[key] = value
		}
	}
	room := true
	for i := range old.tables {
		for key, value := range old.tables[i] {
			if _, newer := b.tables[i][key]; !newer {
				room = b.addTo(i, key, value) && room
			}
		}
	}
	return room
}

// shrink drops the oldest entries until at most most bytes are left, and returns how many it dropped. If older reports
// that an older entry of the key would be found instead, a deletion takes the place of the entry. Deletions are dropped
// only if nothing else is left.
func (b *batch) shrink(most int, older func(key string) bool) (lost int) {
	for e := b.order.Front(); e != nil && b.bytes > most; {
		i, next := e.Value.(item), e.Next()
		if len(i.value) > deletionBytes {
			lost++
			b.bytes -= i.size()
			if i.value = seal.New(i.key, nil, time.Time{}); older(i.key) {
				e.Value = i
				b.bytes += i.size()
			} else {
				b.order.Remove(e)
				delete(b.entries, i.key)
			}
		}
		e = next
	}
	for b.bytes > most {
		b.remove(b.order.Front())
	}
	return lost
}

// write puts the batch into the file, and returns how many values are new in each table.
func (b *batch) write(tx *bbolt.Tx) (added [tableCount]int, err error) {
	if b.audit != nil {
		if err := tx.Bucket(metaBucket).Put(auditKey, b.audit); err != nil {
			return added, err
		}
	}
	if err := writeStops(tx, b.stops); err != nil {
		return added, err
	}
	robots := tx.Bucket(robotsBucket)
	for e := b.order.Front(); e != nil; e = e.Next() {
		i := e.Value.(item)
		if err := putEntry(robots, []byte(i.key), i.value); err != nil {
			return added, err
		}
	}
	for i, name := range tables {
		bucket := tx.Bucket(name)
		// The keys are put in order: bbolt moves all keys of a page that come after a new one, and splits
		// pages only when it commits, so that any other order takes quadratic time.
		for _, key := range slices.Sorted(maps.Keys(b.tables[i])) {
			if bucket.Get([]byte(key)) == nil {
				added[i]++
			}
			if err := bucket.Put([]byte(key), b.tables[i][key]); err != nil {
				return added, err
			}
		}
	}
	return added, nil
}
