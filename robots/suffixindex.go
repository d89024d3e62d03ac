package robots

import (
	"math/bits"
	"slices"
	"strings"
)

// A suffixIndex is a sorted suffix array of one path. All suffixes that begin with the same
// string are adjacent, so that a trie below a "*" can be visited once for all of them.
type suffixIndex struct {
	path string

	// Of the suffixes, in the order of their text.
	starts []int32

	// In starts: where the suffixes that begin with each byte are.
	byFirstByte [257]int32

	// Results of extendByte, by a hash of its arguments.
	memo []memoStep

	// A wavelet matrix of starts; nil before the first call of nextStart.
	levels []waveletLevel

	// Taken since the last call of takeSteps.
	steps int
}

const (
	// indexSteps is how many steps an index takes for each byte of the path; levelSteps is how many
	// its wavelet matrix takes.
	indexSteps = 6
	levelSteps = 4

	// shortLiteral is the maximum length, in bytes, of a literal that strings.Index finds quickly.
	shortLiteral = 16

	// scanPerStep and scanLongPerStep are how many bytes of a path are searched or compared in the
	// time of a step, for a short literal and for a long one.
	scanPerStep     = 32
	scanLongPerStep = 8
)

// maxMemo is the maximum size of the memo of one path, a power of two.
const maxMemo = 1 << 14

// A memoStep is a call of extendByte and its result.
type memoStep struct {
	from, to suffixRange
	depth    int32
	next     byte
}

// A suffixRange is a range of suffixIndex.starts: the suffixes whose first bytes are the same.
type suffixRange struct{ lo, hi int32 }

func newSuffixIndex(path string) *suffixIndex {
	x := &suffixIndex{path: path, starts: sortSuffixes(path), memo: make([]memoStep, min(4<<bits.Len(uint(len(path))), maxMemo))}
	for i := range len(path) {
		x.byFirstByte[int(path[i])+1]++
	}
	for c := range 256 {
		x.byFirstByte[c+1] += x.byFirstByte[c]
	}
	return x
}

// takeSteps returns the steps since its last call.
func (x *suffixIndex) takeSteps() int {
	steps := x.steps
	x.steps = 0
	return steps
}

// byteAt returns the byte at depth of the suffix at index at of starts; -1: the suffix is
// shorter.
func (x *suffixIndex) byteAt(at int32, depth int) int {
	if i := int(x.starts[at]) + depth; i < len(x.path) {
		return int(x.path[i])
	}
	return -1
}

// all returns the range of all suffixes.
func (x *suffixIndex) all() suffixRange { return suffixRange{0, int32(len(x.starts))} }

// extend returns the suffixes of s, whose first depth bytes are the same, that continue with
// text.
func (x *suffixIndex) extend(s suffixRange, depth int, text string) suffixRange {
	for i := range len(text) {
		x.steps++
		switch {
		case s.lo == s.hi:
			return s
		case s.hi-s.lo == 1:
			x.steps += (len(text) - i) / scanPerStep
			if !strings.HasPrefix(x.path[int(x.starts[s.lo])+depth+i:], text[i:]) {
				s.hi = s.lo
			}
			return s
		case depth+i == 0:
			s = suffixRange{x.byFirstByte[text[0]], x.byFirstByte[int(text[0])+1]}
		default:
			s = x.extendByte(s, depth+i, text[i])
		}
	}
	return s
}

// extendByte is extend by one byte. Rules that are alike repeat the same calls, so that
// extendByte keeps as many results as the memo has space for.
func (x *suffixIndex) extendByte(s suffixRange, depth int, c byte) suffixRange {
	step := memoStep{from: s, depth: int32(depth), next: c}
	hash := (uint32(s.lo)*0x9E3779B1 ^ uint32(s.hi)*0x85EBCA6B ^ uint32(depth)<<8 ^ uint32(c)) * 0xC2B2AE35
	known := &x.memo[hash&uint32(len(x.memo)-1)]
	if known.from == step.from && known.depth == step.depth && known.next == c {
		return known.to
	}
	x.steps += bits.Len(uint(s.hi - s.lo))
	step.to.lo = x.lowerBound(s, depth, int(c))
	step.to.hi = x.lowerBound(suffixRange{step.to.lo, s.hi}, depth, int(c)+1)
	*known = step
	return step.to
}

// lowerBound returns the first suffix of s, whose first depth bytes are the same, whose next
// byte is c or more. A suffix that ends there sorts first.
func (x *suffixIndex) lowerBound(s suffixRange, depth, c int) int32 {
	for s.lo < s.hi {
		middle := s.lo + (s.hi-s.lo)/2
		if x.byteAt(middle, depth) < c {
			s.lo = middle + 1
		} else {
			s.hi = middle
		}
	}
	return s.lo
}

// next returns the first offset, from or later, at which a suffix of s begins; -1: there is
// none. depth is the number of bytes that they have in common.
func (x *suffixIndex) next(s suffixRange, depth, from int) int {
	const near = 64
	x.steps += 2
	// With so many, one is probably near.
	if s.hi-s.lo > near/8 {
		if depth <= shortLiteral {
			shared := x.path[x.starts[s.lo]:][:depth]
			if i := strings.Index(x.path[from:min(len(x.path), from+near+depth)], shared); i >= 0 {
				return from + i
			}
		}
		return x.nextStart(s, from)
	}
	first := -1
	for _, at := range x.starts[s.lo:s.hi] {
		if at := int(at); at >= from && (first < 0 || at < first) {
			first = at
		}
	}
	return first
}

// endsPath reports whether the depth bytes that s has in common end the path, and begin at from
// or later. The shortest suffix sorts first.
func (x *suffixIndex) endsPath(s suffixRange, depth, from int) bool {
	at := int(x.starts[s.lo])
	return at >= from && at+depth == len(x.path)
}

// A waveletLevel is one bit of the numbers in a wavelet matrix, which the level above has sorted
// by the bits before. zeros[i] is how many of the first i numbers have a 0.
type waveletLevel struct {
	zeros []int32
	bit   uint32
}

// newWaveletMatrix returns a wavelet matrix of the numbers 0 to n-1 in any order.
func newWaveletMatrix(numbers []int32) []waveletLevel {
	n, depth := len(numbers), bits.Len(uint(len(numbers)))
	levels := make([]waveletLevel, depth)
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
		// Without a branch, which the processor would mispredict.
		for j, v := range now {
			zero, one := l.zeros[j], all+int32(j)-l.zeros[j]
			then[zero+(one-zero)&-(v>>shift&1)] = v
		}
		now, then = then, now
	}
	return levels
}

// nextStart returns the least number of starts in s that is not below from, or -1.
func (x *suffixIndex) nextStart(s suffixRange, from int) int {
	if x.levels == nil {
		x.levels = newWaveletMatrix(x.starts)
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
			s = suffixRange{zlo, zhi}
			continue
		}
		below -= zhi - zlo
		value |= l.bit
		all := l.zeros[len(l.zeros)-1]
		s = suffixRange{all + s.lo - zlo, all + s.hi - zhi}
	}
	return int(value)
}

// countBelow returns how many numbers of starts in s are below limit.
func (x *suffixIndex) countBelow(s suffixRange, limit int) int32 {
	if limit >= len(x.starts) {
		return s.hi - s.lo
	}
	count := int32(0)
	for i := range x.levels {
		l := &x.levels[i]
		zlo, zhi := l.zeros[s.lo], l.zeros[s.hi]
		if uint32(limit)&l.bit == 0 {
			s = suffixRange{zlo, zhi}
			continue
		}
		count += zhi - zlo
		all := l.zeros[len(l.zeros)-1]
		s = suffixRange{all + s.lo - zlo, all + s.hi - zhi}
	}
	return count
}

// sortSuffixes returns the starts of the suffixes of a path in the order of their text. It takes
// time proportional to the length of any path.
func sortSuffixes(path string) []int32 {
	text := make([]int32, len(path))
	for i := range text {
		text[i] = int32(path[i])
	}
	return inducedSort(text, 256)
}

// inducedSort sorts the suffixes of a text of numbers below limit by the algorithm SA-IS (Nong,
// Zhang and Chan, 2009): it sorts the substrings between the LMS suffixes (leftmost S-type),
// names them by their order, sorts the shorter text of names in the same way, and induces the
// order of all suffixes from that of the LMS suffixes.
func inducedSort(text []int32, limit int) []int32 {
	s := newSuffixSorter(text, limit)
	if len(s.lms) == 0 {
		s.induce(nil)
		return s.sorted
	}
	s.induce(s.lms)
	names, distinct := s.nameLMS()
	byRank := inducedSort(names, distinct)
	for rank, i := range byRank {
		byRank[rank] = s.lms[i]
	}
	s.induce(byRank)
	return s.sorted
}

// A suffixSorter is one level of inducedSort.
type suffixSorter struct {
	text []int32

	// The suffix is less than the one that begins one later.
	sType []bool

	// The S-type suffixes whose predecessor is not, in text order.
	lms []int32

	// Where the suffixes that begin with each number are in sorted.
	starts []int32

	// The next free index for each number; for induce.
	next   []int32
	sorted []int32
}

func newSuffixSorter(text []int32, limit int) *suffixSorter {
	n := len(text)
	s := &suffixSorter{
		text: text, sType: make([]bool, n), sorted: make([]int32, n),
		starts: make([]int32, limit+1), next: make([]int32, limit),
	}
	for i := n - 2; i >= 0; i-- {
		s.sType[i] = text[i] < text[i+1] || text[i] == text[i+1] && s.sType[i+1]
	}
	for i := 1; i < n; i++ {
		if s.sType[i] && !s.sType[i-1] {
			s.lms = append(s.lms, int32(i))
		}
	}
	for _, c := range text {
		s.starts[c+1]++
	}
	for c := range limit {
		s.starts[c+1] += s.starts[c]
	}
	return s
}

// induce fills sorted from the LMS suffixes in their order: first the L-type suffixes from left
// to right, then the S-type suffixes from right to left.
func (s *suffixSorter) induce(lms []int32) {
	n := len(s.text)
	if n == 0 {
		return
	}
	for i := range s.sorted {
		s.sorted[i] = -1
	}
	copy(s.next, s.starts[1:])
	for i := len(lms) - 1; i >= 0; i-- {
		s.placeLast(lms[i])
	}
	copy(s.next, s.starts)
	s.placeFirst(int32(n - 1))
	for _, at := range s.sorted {
		if at > 0 && !s.sType[at-1] {
			s.placeFirst(at - 1)
		}
	}
	copy(s.next, s.starts[1:])
	for i := n - 1; i >= 0; i-- {
		if at := s.sorted[i]; at > 0 && s.sType[at-1] {
			s.placeLast(at - 1)
		}
	}
}

// placeFirst puts a suffix at the first free index for its first number.
func (s *suffixSorter) placeFirst(at int32) {
	c := s.text[at]
	s.sorted[s.next[c]] = at
	s.next[c]++
}

// placeLast puts a suffix at the last free index for its first number.
func (s *suffixSorter) placeLast(at int32) {
	c := s.text[at]
	s.next[c]--
	s.sorted[s.next[c]] = at
}

// nameLMS returns for each LMS suffix, in text order, the rank of the substring from it to the
// next LMS suffix, and how many ranks there are. sorted is in the order of these substrings.
func (s *suffixSorter) nameLMS() (names []int32, distinct int) {
	// In lms, by where they begin.
	index := make([]int32, len(s.text))
	for i, at := range s.lms {
		index[at] = int32(i)
	}
	names = make([]int32, len(s.lms))
	before := int32(-1)
	for _, at := range s.sorted {
		if at == 0 || !s.sType[at] || s.sType[at-1] {
			continue
		}
		if before < 0 || !s.sameLMS(index[before], index[at]) {
			distinct++
		}
		names[index[at]] = int32(distinct - 1)
		before = at
	}
	return names, distinct
}

// sameLMS reports whether the substrings of two LMS suffixes, each up to the next LMS suffix
// inclusive, are the same.
func (s *suffixSorter) sameLMS(a, b int32) bool {
	from, to := s.lms[a], s.lmsEnd(a)
	other, end := s.lms[b], s.lmsEnd(b)
	if to-from != end-other || to > int32(len(s.text)) || end > int32(len(s.text)) {
		// One ends with the text, whose end is less than any number.
		return false
	}
	for ; from < to; from, other = from+1, other+1 {
		if s.text[from] != s.text[other] {
			return false
		}
	}
	return true
}

// lmsEnd returns where the substring of an LMS suffix ends; for the last one it is beyond the
// text.
func (s *suffixSorter) lmsEnd(i int32) int32 {
	if int(i)+1 < len(s.lms) {
		return s.lms[i+1] + 1
	}
	return int32(len(s.text)) + 1
}
