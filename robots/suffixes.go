package robots

import (
	"math/bits"
	"slices"
	"strings"
)

// A suffixes is an index of one path: its suffixes in the order of their text.
// All places where a string occurs in the path stand together in it, so that a
// trie below a "*" can be gone through once for all of them.
type suffixes struct {
	path   string
	starts []int32     // of the suffixes, sorted
	octets [257]int32  // in starts: where those that begin with each byte do, and with any above
	taken  []taken     // by a hash of what was asked
	levels []wavelevel // of starts, for nextIn; nil before nextIn is called
	steps  int         // taken since the last call of count
}

// indexSteps is how many steps an index takes for each byte of the path, and
// levelSteps how many its levels take.
const (
	indexSteps = 6
	levelSteps = 4
)

// maxTaken is how many steps of one path are kept, a power of two.
const maxTaken = 1 << 14

// A taken step is one whose answer is kept.
type taken struct {
	from, to stretch
	depth    int32
	octet    byte
}

// A stretch of suffixes.starts: the suffixes that share their first octets.
type stretch struct{ lo, hi int32 }

func newSuffixes(path string) *suffixes {
	x := &suffixes{path: path, starts: sortSuffixes(path), taken: make([]taken, min(4<<bits.Len(uint(len(path))), maxTaken))}
	for i := range len(path) {
		x.octets[int(path[i])+1]++
	}
	for c := range 256 {
		x.octets[c+1] += x.octets[c]
	}
	return x
}

// count gives the steps taken since its last call.
func (x *suffixes) count() int {
	steps := x.steps
	x.steps = 0
	return steps
}

// octet gives the one at depth in the suffix at a place in starts; -1: it is shorter.
func (x *suffixes) octet(at int32, depth int) int {
	if i := int(x.starts[at]) + depth; i < len(x.path) {
		return int(x.path[i])
	}
	return -1
}

// all are the suffixes of the empty string.
func (x *suffixes) all() stretch { return stretch{0, int32(len(x.starts))} }

// narrow gives those of s, alike in their first depth octets, that go on with text.
func (x *suffixes) narrow(s stretch, depth int, text string) stretch {
	for i := range len(text) {
		x.steps++
		switch {
		case s.lo == s.hi:
			return s
		case s.hi-s.lo == 1:
			x.steps += (len(text) - i) / scanned
			if !strings.HasPrefix(x.path[int(x.starts[s.lo])+depth+i:], text[i:]) {
				s.hi = s.lo
			}
			return s
		case depth+i == 0:
			s = stretch{x.octets[text[0]], x.octets[int(text[0])+1]}
		default:
			s = x.step(s, depth+i, text[i])
		}
	}
	return s
}

// step is narrow by one octet. Patterns that are alike ask the same again and
// again, so that answers are kept, as many as there is room for.
func (x *suffixes) step(s stretch, depth int, c byte) stretch {
	question := taken{from: s, depth: int32(depth), octet: c}
	hash := (uint32(s.lo)*0x9E3779B1 ^ uint32(s.hi)*0x85EBCA6B ^ uint32(depth)<<8 ^ uint32(c)) * 0xC2B2AE35
	place := &x.taken[hash&uint32(len(x.taken)-1)]
	if place.from == question.from && place.depth == question.depth && place.octet == c {
		return place.to
	}
	x.steps += bits.Len(uint(s.hi - s.lo))
	question.to.lo = x.search(s, depth, int(c))
	question.to.hi = x.search(stretch{question.to.lo, s.hi}, depth, int(c)+1)
	*place = question
	return question.to
}

// search gives the first of s, alike in their first depth octets, whose next
// octet is c or above. A suffix that ends there has none, and sorts first.
func (x *suffixes) search(s stretch, depth, c int) int32 {
	for s.lo < s.hi {
		middle := s.lo + (s.hi-s.lo)/2
		if x.octet(middle, depth) < c {
			s.lo = middle + 1
		} else {
			s.hi = middle
		}
	}
	return s.lo
}

// next gives the first octet, not before from, where one of s begins; depth is
// what they share; -1: none does.
func (x *suffixes) next(s stretch, depth, from int) int {
	const near = 64
	x.steps += 2
	if s.hi-s.lo > near/8 { // so many may well be near
		if depth <= shortLiteral {
			shared := x.path[x.starts[s.lo]:][:depth]
			if i := strings.Index(x.path[from:min(len(x.path), from+near+depth)], shared); i >= 0 {
				return from + i
			}
		}
		return x.nextIn(s, from)
	}
	first := -1
	for _, at := range x.starts[s.lo:s.hi] {
		if at := int(at); at >= from && (first < 0 || at < first) {
			first = at
		}
	}
	return first
}

// endsPath reports whether what s shares, depth octets, ends the path, not
// beginning before from. The shortest suffix sorts first.
func (x *suffixes) endsPath(s stretch, depth, from int) bool {
	at := int(x.starts[s.lo])
	return at >= from && at+depth == len(x.path)
}

// A wavelevel is one bit of numbers, the level above having sorted them by the
// bits before it: how many of the first i have a 0 there.
type wavelevel struct {
	zeros []int32
	bit   uint32
}

// newWavelevels makes a wavelet matrix of the numbers 0 to n-1 in any order.
func newWavelevels(numbers []int32) []wavelevel {
	n, depth := len(numbers), bits.Len(uint(len(numbers)))
	levels := make([]wavelevel, depth)
	now, then := slices.Clone(numbers), make([]int32, n)
	counts := make([]int32, depth*(n+1))
	for i := range levels {
		l := &levels[i]
		shift := depth - 1 - i
		l.bit, l.zeros, counts = 1<<shift, counts[:n+1:n+1], counts[n+1:]
		for j, v := range now {
			l.zeros[j+1] = l.zeros[j] + 1 - v>>shift&1
		}
		all := l.zeros[n]
		for j, v := range now { // without a branch, which would be a guess
			zero, one := l.zeros[j], all+int32(j)-l.zeros[j]
			then[zero+(one-zero)&-(v>>shift&1)] = v
		}
		now, then = then, now
	}
	return levels
}

// nextIn gives the least of the numbers in s that is not below from, or -1.
func (x *suffixes) nextIn(s stretch, from int) int {
	if x.levels == nil {
		x.levels = newWavelevels(x.starts)
		x.steps += levelSteps * len(x.starts)
	}
	x.steps += len(x.levels) / 2
	below := x.countBelow(s, from)
	if below == s.hi-s.lo {
		return -1
	}
	value := uint32(0)
	for i := range x.levels {
		l := &x.levels[i]
		zlo, zhi := l.zeros[s.lo], l.zeros[s.hi]
		if below < zhi-zlo {
			s = stretch{zlo, zhi}
			continue
		}
		below -= zhi - zlo
		value |= l.bit
		all := l.zeros[len(l.zeros)-1]
		s = stretch{all + s.lo - zlo, all + s.hi - zhi}
	}
	return int(value)
}

// countBelow gives how many of the numbers in s are below limit.
func (x *suffixes) countBelow(s stretch, limit int) int32 {
	if limit >= len(x.starts) {
		return s.hi - s.lo
	}
	count := int32(0)
	for i := range x.levels {
		l := &x.levels[i]
		zlo, zhi := l.zeros[s.lo], l.zeros[s.hi]
		if uint32(limit)&l.bit == 0 {
			s = stretch{zlo, zhi}
			continue
		}
		count += zhi - zlo
		all := l.zeros[len(l.zeros)-1]
		s = stretch{all + s.lo - zlo, all + s.hi - zhi}
	}
	return count
}
