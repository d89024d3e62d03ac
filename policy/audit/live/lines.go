package live

import "sync"

// A Line is a line of the trail, without its line feed.
type Line struct {
	// Number is the seq of the line.
	Number uint64

	// JSON is the caller's own copy.
	JSON []byte
}

// A lineBuffer has the last lines in a ring buffer.
type lineBuffer struct {
	// mu guards what follows.
	mu  sync.Mutex
	buf []byte

	// ranges has the places of the lines from oldest to the one before next, by number.
	ranges       []byteRange
	oldest, next uint64

	// end is that of the newest line in buf.
	end int
}

// byteRange is the place of a line in the buffer.
type byteRange struct{ from, to int }

func newLineBuffer(most, size int) lineBuffer {
	return lineBuffer{buf: make([]byte, size), ranges: make([]byteRange, most)}
}

func (l *lineBuffer) rangeOf(number uint64) *byteRange {
	return &l.ranges[number%uint64(len(l.ranges))]
}

// add adds a line, and removes the oldest ones if it needs their space.
func (l *lineBuffer) add(number uint64, line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// If this is not the next line, it is the first one, or lines are missing before it.
	if number != l.next {
		l.oldest, l.next, l.end = number, number, 0
	}
	if l.next-l.oldest == uint64(len(l.ranges)) {
		l.oldest++
	}
	from := l.end
	if from+len(line) > len(l.buf) {
		// The lines after the end are the oldest.
		for l.oldest < l.next && l.rangeOf(l.oldest).from >= from {
			l.oldest++
		}
		from = 0
	}
	to := from + len(line)
	for l.oldest < l.next && l.rangeOf(l.oldest).from < to && l.rangeOf(l.oldest).to > from {
		l.oldest++
	}
	copy(l.buf[from:], line)
	*l.rangeOf(number) = byteRange{from, to}
	l.next, l.end = number+1, to
}

// after returns the oldest lines after a number, and how many in between are lost.
func (l *lineBuffer) after(number uint64, most int) (all []Line, missed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number >= l.next {
		return nil, 0
	}
	from := max(number+1, l.oldest)
	if number > 0 {
		missed = from - number - 1
	}
	for n := from; n < l.next && len(all) < most; n++ {
		p := l.rangeOf(n)
		all = append(all, Line{n, append([]byte(nil), l.buf[p.from:p.to]...)})
	}
	return all, missed
}

func (l *lineBuffer) newest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.next, 1) - 1
}
