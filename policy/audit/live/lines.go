package live

import "sync"

// A Line is one of the audit, without its end.
type Line struct {
	Number uint64 // its seq
	JSON   []byte // the caller's own copy
}

// lines are the last ones, in one piece of memory that they go round and round in.
type lines struct {
	mu     sync.Mutex // guards what follows
	octets []byte
	places []place // of the lines from oldest on, by number
	oldest uint64
	next   uint64 // behind the newest
	end    int    // of the newest, in octets
}

// place is where a line is.
type place struct{ from, to int }

func newLines(most, octets int) lines {
	return lines{octets: make([]byte, octets), places: make([]place, most)}
}

func (l *lines) place(number uint64) *place { return &l.places[number%uint64(len(l.places))] }

// add takes a line in, and as many out as have to make room for it.
func (l *lines) add(number uint64, line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number != l.next { // the first, or there is a gap that nobody has told
		l.oldest, l.next, l.end = number, number, 0
	}
	if l.next-l.oldest == uint64(len(l.places)) {
		l.oldest++
	}
	from := l.end
	if from+len(line) > len(l.octets) {
		for l.oldest < l.next && l.place(l.oldest).from >= from { // behind the end: the oldest
			l.oldest++
		}
		from = 0
	}
	to := from + len(line)
	for l.oldest < l.next && l.place(l.oldest).from < to && l.place(l.oldest).to > from {
		l.oldest++
	}
	copy(l.octets[from:], line)
	*l.place(number) = place{from, to}
	l.next, l.end = number+1, to
}

// after gives the oldest behind a number, and how many between are gone.
func (l *lines) after(number uint64, most int) (all []Line, missed uint64) {
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
		p := l.place(n)
		all = append(all, Line{n, append([]byte(nil), l.octets[p.from:p.to]...)})
	}
	return all, missed
}

func (l *lines) newest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.next, 1) - 1
}
