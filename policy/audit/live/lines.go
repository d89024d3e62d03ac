package live

import "sync"

// A Line is a line of the trail, without its line feed.
type Line struct {
	Number uint64 // seq of the line
	JSON   []byte // the caller's own copy
}

// A lineBuffer has the last lines in a ring buffer.
type lineBuffer struct {
	mu     sync.Mutex // guards what follows
	buf    []byte
	ranges []byteRange // of the lines from oldest on, by number
	oldest uint64
	next   uint64 // number after the newest line
	end    int    // end of the newest line in buf
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
	if number != l.next { // it is the first line, or lines are missing before it
		l.oldest, l.next, l.end = number, number, 0
	}
	if l.next-l.oldest == uint64(len(l.ranges)) {
		l.oldest++
	}
	from := l.end
	if from+len(line) > len(l.buf) {
		for l.oldest < l.next && l.rangeOf(l.oldest).from >= from { // lines after the end are the oldest
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
