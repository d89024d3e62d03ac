package pacefile

import (
	"crypto/rand"
	"encoding/binary"
	"hash/crc32"
	"math"
	"os"
	"time"

	"robotsproxy/policy/osfile"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/ledger"
	"robotsproxy/policy/pace/limiter"
)

// The layout of the file: a header, and pages of rows. All numbers are little endian, all times wall-clock times in
// nanoseconds since 1970, 0 for none.
const (
	pageSize = 4096
	pages    = 512
	fileSize = (1 + pages) * pageSize

	// A page begins with the CRC of what follows it, and the time when the page was written.
	writtenAt = 8
	rowsAt    = 64
	rowSize   = 96
	rows      = (pageSize - rowsAt) / rowSize

	// A row has the name of what it is about, what it says, the length of a text in it, and until when it is of use.
	kindAt   = nameSize
	lengthAt = kindAt + 1
	untilAt  = 24
	valueAt  = 32
	nameSize = 16

	maxLimiters = 2
)

// The kinds of rows.
const (
	freeRow    = iota
	limiterRow // slot, tokens, stamp, per second, burst, gap, last, longest
	backOffRow // end, length, the request that caused it
	inUseRow   // process, number of its concurrency slots
	waitRow    // process, since when it waits for a concurrency slot
)

// The values of rows.
const (
	slotAt, tokensAt, stampAt, perSecondAt = valueAt, valueAt + 8, valueAt + 16, valueAt + 24
	burstAt, gapAt, lastAt, longestAt      = valueAt + 32, valueAt + 40, valueAt + 48, valueAt + 56
	endAt, backOffLengthAt, byAt, maxBy    = valueAt, valueAt + 8, valueAt + 16, rowSize - valueAt - 16
	processAt, countAt, sinceAt            = valueAt, valueAt + 8, valueAt + 8
)

// leaseTime is how long a concurrency slot stays in use if its process does not renew it.
const leaseTime = 10 * time.Second

// farthest is how far ahead the times of a row may be.
const farthest = 365 * 24 * time.Hour

// A name stands for a key, or for a limiter of a key.
type name [nameSize]byte

// pageOf returns the number of the page that has all rows of a key.
func pageOf(key name) int64 { return int64(binary.LittleEndian.Uint64(key[:]) % pages) }

// A clock is a time as this process and as the file has it.
type clock struct {
	time.Time
	wall int64
}

func clockNow() clock {
	now := time.Now()
	return clock{now, now.UnixNano()}
}

// in returns a time as the file has it.
func (c clock) in(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return c.wall + int64(min(t.Sub(c.Time), farthest))
}

// out returns a time of the file as this process has it.
func (c clock) out(wall int64) time.Time {
	if wall == 0 {
		return time.Time{}
	}
	return c.Add(time.Duration(wall - c.wall))
}

// A page is a buffer for one page of the file.
type page struct {
	number  int64
	data    [pageSize]byte
	changed bool

	// found says which rows find has found since the page was loaded: those of the request's key.
	found [rows]bool
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum returns the CRC of the page. That of an empty page is 0.
func (p *page) sum() uint32 {
	if p.get(writtenAt) == 0 {
		return 0
	}
	return crc32.Checksum(p.data[writtenAt:], castagnoli)
}

func (p *page) get(at int) int64 { return int64(binary.LittleEndian.Uint64(p.data[at:])) }

func (p *page) set(at int, v int64) {
	binary.LittleEndian.PutUint64(p.data[at:], uint64(v))
	p.changed = true
}

// setBack makes all times earlier: the wall clock was set back after the page was written.
func (p *page) setBack(by int64) {
	for at := rowsAt; at+rowSize <= pageSize; at += rowSize {
		times := []int{untilAt}
		switch p.data[at+kindAt] {
		case freeRow:
			continue
		case limiterRow:
			times = append(times, stampAt, lastAt)
		case backOffRow:
			times = append(times, endAt)
		case waitRow:
			times = append(times, sinceAt)
		}
		for _, field := range times {
			if v := p.get(at + field); v != 0 {
				p.set(at+field, v-by)
			}
		}
	}
}

// rowAt returns the number of the row that begins at a place.
func rowAt(at int) int { return (at - rowsAt) / rowSize }

// find returns where the row of this kind and name begins; -1: there is none. A row of inUseRow or waitRow is that of a process.
func (p *page) find(kind byte, n name, process uint64) int {
	for at := rowsAt; at+rowSize <= pageSize; at += rowSize {
		ours := kind != inUseRow && kind != waitRow || uint64(p.get(at+processAt)) == process
		if ours && p.data[at+kindAt] == kind && name(p.data[at:at+nameSize]) == n {
			p.found[rowAt(at)] = true
			return at
		}
	}
	return -1
}

// row returns where a row begins, which it adds if there is none; -1: there is no space. It takes the place of a row that
// is of no use any more, else of a back-off that has ended, else of the one that would be longest, but for concurrency slots
// and the rows that were found.
func (p *page) row(kind byte, n name, process uint64, until time.Duration, now clock) int {
	at := p.find(kind, n, process)
	if at < 0 {
		if at = p.space(now); at < 0 {
			return -1
		}
		clear(p.data[at : at+rowSize])
		copy(p.data[at:], n[:])
		p.data[at+kindAt] = kind
		p.found[rowAt(at)] = true
	}
	p.set(at+untilAt, now.wall+int64(min(max(0, until), farthest)))
	return at
}

// space returns where a row may be added; -1: nowhere.
func (p *page) space(now clock) int {
	longest, latest := -1, int64(math.MinInt64)
	for at := rowsAt; at+rowSize <= pageSize; at += rowSize {
		until := p.get(at + untilAt)
		switch kind := p.data[at+kindAt]; {
		case kind == freeRow:
			return at
		case p.found[rowAt(at)]:
		case until <= now.wall:
			return at
		case kind == backOffRow && p.get(at+endAt) <= now.wall:
			// A back-off that has ended delays no request.
			longest, latest = at, math.MaxInt64
		case kind != inUseRow && until > latest:
			longest, latest = at, until
		}
	}
	return longest
}

// remove removes the row that begins at a place; -1: none does.
func (p *page) remove(at int) {
	if at >= 0 {
		clear(p.data[at : at+rowSize])
		p.changed = true
	}
}

func (p *page) limiter(n name, now clock) (l ledger.Limiter) {
	at := p.find(limiterRow, n, 0)
	if at < 0 {
		return l
	}
	return ledger.Limiter{Slot: uint64(p.get(at + slotAt)), State: limiter.State{
		Limit: limiter.Limit{
			PerSecond: math.Float64frombits(uint64(p.get(at + perSecondAt))),
			Burst:     int(p.get(at + burstAt)), Gap: time.Duration(p.get(at + gapAt)),
		},
		Tokens: math.Float64frombits(uint64(p.get(at + tokensAt))), Stamp: now.out(p.get(at + stampAt)),
		Last: now.out(p.get(at + lastAt)), Longest: time.Duration(p.get(at + longestAt)),
	}}
}

// setLimiter reports whether there was space for the row.
func (p *page) setLimiter(n name, l ledger.Limiter, now clock) bool {
	if l == (ledger.Limiter{}) {
		p.remove(p.find(limiterRow, n, 0))
		return true
	}
	at := p.row(limiterRow, n, 0, l.IdleAt().Sub(now.Time), now)
	if at < 0 {
		return false
	}
	p.set(at+slotAt, int64(l.Slot))
	p.set(at+tokensAt, int64(math.Float64bits(l.Tokens)))
	p.set(at+stampAt, now.in(l.Stamp))
	p.set(at+perSecondAt, int64(math.Float64bits(l.PerSecond)))
	p.set(at+burstAt, int64(l.Burst))
	p.set(at+gapAt, int64(l.Gap))
	p.set(at+lastAt, now.in(l.Last))
	p.set(at+longestAt, int64(l.Longest))
	return true
}

func (p *page) backOff(key name, now clock) (b pace.BackOff) {
	at := p.find(backOffRow, key, 0)
	if at < 0 {
		return b
	}
	by := p.data[at+byAt:][:min(int(p.data[at+lengthAt]), maxBy)]
	return pace.BackOff{Until: now.out(p.get(at + endAt)), Length: time.Duration(p.get(at + backOffLengthAt)), By: string(by)}
}

// setBackOff reports whether there was space for the row. It removes the row of the zero back-off.
func (p *page) setBackOff(key name, b pace.BackOff, now clock) bool {
	if b == (pace.BackOff{}) {
		p.remove(p.find(backOffRow, key, 0))
		return true
	}
	if b == p.backOff(key, now) {
		return true
	}
	at := p.row(backOffRow, key, 0, b.Until.Sub(now.Time)+pace.BackOffMemory, now)
	if at < 0 {
		return false
	}
	p.set(at+endAt, now.in(b.Until))
	p.set(at+backOffLengthAt, int64(b.Length))
	p.data[at+lengthAt] = byte(copy(p.data[at+byAt:][:maxBy], b.By))
	return true
}

// inUse returns how many concurrency slots of the key the processes other than process have.
func (p *page) inUse(key name, process uint64, now clock) (n int) {
	for at := rowsAt; at+rowSize <= pageSize; at += rowSize {
		if p.data[at+kindAt] == inUseRow && name(p.data[at:at+nameSize]) == key &&
			p.get(at+untilAt) > now.wall && uint64(p.get(at+processAt)) != process {
			n += int(p.get(at + countAt))
		}
	}
	return n
}

// setInUse sets how many concurrency slots of the key a process has. It reports whether there was space for the row.
func (p *page) setInUse(key name, process uint64, n int, now clock) bool {
	if n == 0 {
		p.remove(p.find(inUseRow, key, process))
		return true
	}
	at := p.row(inUseRow, key, process, leaseTime, now)
	if at < 0 {
		return false
	}
	p.set(at+processAt, int64(process))
	p.set(at+countAt, int64(n))
	return true
}

// waitFor is how long a process counts as waiting for a concurrency slot after it has asked for one. It is more than the
// time after which a request asks again.
const waitFor = 500 * time.Millisecond

// setWaiting notes that a process waits for a concurrency slot of the key, or that it does not.
func (p *page) setWaiting(key name, process uint64, waits bool, now clock) {
	at := p.find(waitRow, key, process)
	if !waits {
		p.remove(at)
		return
	}
	begins := at < 0 || p.get(at+untilAt) <= now.wall
	// If there is no space, other processes go first.
	if at = p.row(waitRow, key, process, waitFor, now); at >= 0 && begins {
		p.set(at+processAt, int64(process))
		p.set(at+sinceAt, now.wall)
	}
}

// waitingBefore returns how many other processes have waited longer for a concurrency slot of the key.
func (p *page) waitingBefore(key name, process uint64, now clock) (n int) {
	since := now.wall
	if at := p.find(waitRow, key, process); at >= 0 && p.get(at+untilAt) > now.wall {
		since = p.get(at + sinceAt)
	}
	for at := rowsAt; at+rowSize <= pageSize; at += rowSize {
		waits := p.data[at+kindAt] == waitRow && name(p.data[at:at+nameSize]) == key && p.get(at+untilAt) > now.wall
		if waits && p.get(at+sinceAt) < since {
			n++
		}
	}
	return n
}

// A header is the first page of the file: what it is, the seed of the names, and the last back-offs that operators have
// ended.
type header [pageSize]byte

const (
	magic    = "robotsproxy pace 1\n"
	seedAt   = 32
	seedSize = 32

	// lastEnd is where the number of the last ended back-off is.
	lastEnd = 64

	// endsAt is where the ended back-offs begin. Each has its number, the length of its key, and the key.
	endsAt  = 256
	endSize = 384
	maxEnds = (pageSize - endsAt) / endSize
	maxKey  = endSize - 10
)

func (h *header) valid() bool { return string(h[:len(magic)]) == magic }

func (h *header) make() {
	clear(h[:])
	copy(h[:], magic)
	rand.Read(h[seedAt : seedAt+seedSize])
}

func (h *header) seed() (s [seedSize]byte) {
	copy(s[:], h[seedAt:])
	return s
}

func (h *header) last() uint64 { return binary.LittleEndian.Uint64(h[lastEnd:]) }

// end adds the key of an ended back-off. A key that is too long is left out: the other processes keep its back-off.
func (h *header) end(key string) {
	if len(key) > maxKey {
		return
	}
	n := h.last() + 1
	binary.LittleEndian.PutUint64(h[lastEnd:], n)
	e := h[endsAt+int(n%maxEnds)*endSize:][:endSize]
	binary.LittleEndian.PutUint64(e, n)
	binary.LittleEndian.PutUint16(e[8:], uint16(len(key)))
	copy(e[10:], key)
}

// since returns the keys of the back-offs that have ended after the one with the given number, as far as they are known.
func (h *header) since(number uint64) (keys []string) {
	// The number of the last one may be any in a damaged header, also the greatest, which n must not exceed.
	for n := max(number, h.last()-min(h.last(), maxEnds)); n < h.last(); {
		n++
		e := h[endsAt+int(n%maxEnds)*endSize:][:endSize]
		if binary.LittleEndian.Uint64(e) == n {
			keys = append(keys, string(e[10:][:min(int(binary.LittleEndian.Uint16(e[8:])), maxKey)]))
		}
	}
	return keys
}

// readOrMake reads the header of a file, which it makes anew if it is not complete. The caller has locked it. The header is
// not a result: it would make the stack of each request twice as large.
func (h *header) readOrMake(f *os.File, size int64) error {
	if size == fileSize {
		if _, err := f.ReadAt(h[:], 0); err != nil || h.valid() {
			return err
		}
	}
	if err := osfile.Truncate(f, 0); err != nil {
		return err
	}
	// The file has no holes, so that a full disk prevents no later write. It is not one write, because Linux keeps in one
	// piece of memory what it gets in one write, and each later write of a page would go through the whole piece.
	zeros := make([]byte, pageSize)
	for at := int64(0); at < fileSize; at += pageSize {
		if _, err := f.WriteAt(zeros, at); err != nil {
			return err
		}
	}
	h.make()
	_, err := f.WriteAt(h[:], 0)
	return err
}
