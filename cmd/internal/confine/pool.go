package confine

import (
	"container/list"
	"encoding/binary"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	// poolSize is how many names have an address at once. The least recently used name gives way to
	// a new one, so it must be far more than a client caches.
	poolSize = 1 << 16

	// answerTTL is how long an answer of the resolver is valid.
	answerTTL = 60 * time.Second

	// poolGrace is how long a name keeps its address after the last answer that had it.
	poolGrace = 2 * answerTTL
)

// reserved is how many addresses at the start of each family belong to no name.
const reserved = 256

// The addresses of the pool.
var (
	// pool4 is for tests of networks, and is routed nowhere (RFC 2544).
	pool4 = netip.MustParsePrefix("198.18.0.0/15")
	// pool6 is a unique local prefix (RFC 4193).
	pool6 = netip.MustParsePrefix("fd72:6f62:6f74::/96")
)

// resolver4 is the address of the resolver inside.
var resolver4 = netip.AddrFrom4([4]byte{198, 18, 0, 53})

// A pool gives each name one address of either family, and knows the name of an address. A name
// keeps its addresses while a connection to them is open and for poolGrace after the last answer.
// Then the least recently used name gives its addresses to a new one. Any number of goroutines
// may use a pool.
type pool struct {
	size int
	now  func() time.Time

	// mu guards the fields below.
	mu    sync.Mutex
	names map[string]*poolEntry

	// slots has the entries by the index of their addresses.
	slots []*poolEntry

	// idle has each *poolEntry without connections, the least recently used first.
	idle *list.List
}

// A poolEntry is a name with its addresses.
type poolEntry struct {
	name string

	// index is the index of the addresses.
	index int

	// open counts the connections to the addresses.
	open int

	// answered is when the resolver last gave out one of the addresses.
	answered time.Time

	// place is the element of pool.idle; nil: there are connections.
	place *list.Element
}

// newPool returns an empty pool for size names.
func newPool(size int, now func() time.Time) *pool {
	return &pool{size: size, now: now, names: map[string]*poolEntry{}, idle: list.New()}
}

// assign returns the addresses of a name, which is in lower case. If the pool is full of names
// that may be in use, ok is false.
func (p *pool) assign(name string) (v4, v6 netip.Addr, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.names[name]
	if e == nil {
		if e = p.free(); e == nil {
			return netip.Addr{}, netip.Addr{}, false
		}
		e.name = strings.Clone(name)
		p.names[e.name] = e
	}
	e.answered = p.now()
	p.touch(e)
	v4, v6 = poolAddrs(e.index)
	return v4, v6, true
}

// free returns an entry without a name; nil: there is none.
func (p *pool) free() *poolEntry {
	if len(p.slots) < p.size {
		e := &poolEntry{index: len(p.slots)}
		e.place = p.idle.PushBack(e)
		p.slots = append(p.slots, e)
		return e
	}
	oldest := p.idle.Front()
	if oldest == nil {
		return nil
	}
	e := oldest.Value.(*poolEntry)
	if p.now().Sub(e.answered) < poolGrace {
		return nil
	}
	delete(p.names, e.name)
	return e
}

// touch makes e the most recently used name.
func (p *pool) touch(e *poolEntry) {
	if e.place != nil {
		p.idle.MoveToBack(e.place)
	}
}

// lookup returns the name of an address; ok is false if it has none.
func (p *pool) lookup(addr netip.Addr) (name string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entry(addr)
	if e == nil {
		return "", false
	}
	p.touch(e)
	return e.name, true
}

// hold returns the name of an address and keeps it until release is called, which is called once. For an
// address without a name it does nothing.
func (p *pool) hold(addr netip.Addr) (name string, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entry(addr)
	if e == nil {
		return "", func() {}
	}
	if e.open++; e.place != nil {
		p.idle.Remove(e.place)
		e.place = nil
	}
	return e.name, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if e.open--; e.open == 0 {
			e.place = p.idle.PushBack(e)
		}
	}
}

// entry returns the entry of an address; nil: it has none.
func (p *pool) entry(addr netip.Addr) *poolEntry {
	i := poolIndex(addr.Unmap())
	if i < 0 || i >= len(p.slots) || p.slots[i].name == "" {
		return nil
	}
	return p.slots[i]
}

// poolAddrs returns the addresses at an index.
func poolAddrs(i int) (v4, v6 netip.Addr) {
	low := uint32(i + reserved)
	four, six := pool4.Addr().As4(), pool6.Addr().As16()
	binary.BigEndian.PutUint32(four[:], binary.BigEndian.Uint32(four[:])+low)
	binary.BigEndian.PutUint32(six[12:], low)
	return netip.AddrFrom4(four), netip.AddrFrom16(six)
}

// poolIndex returns the index of an address; negative: it is not one of the pool.
func poolIndex(addr netip.Addr) int {
	switch {
	case pool4.Contains(addr):
		four, first := addr.As4(), pool4.Addr().As4()
		return int(binary.BigEndian.Uint32(four[:])-binary.BigEndian.Uint32(first[:])) - reserved
	case pool6.Contains(addr):
		six := addr.As16()
		return int(int64(binary.BigEndian.Uint32(six[12:])) - reserved)
	default:
		return -1
	}
}
