package robots

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
func inducedSort(text []int32, most int) []int32 {
	s := newSuffixSorter(text, most)
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
	text   []int32
	sType  []bool  // the suffix is less than the one that begins one later
	lms    []int32 // the S-type suffixes whose predecessor is not, in text order
	starts []int32 // where the suffixes that begin with each number are in sorted
	next   []int32 // the next free index for each number; for induce
	sorted []int32
}

func newSuffixSorter(text []int32, most int) *suffixSorter {
	n := len(text)
	s := &suffixSorter{
		text: text, sType: make([]bool, n), sorted: make([]int32, n),
		starts: make([]int32, most+1), next: make([]int32, most),
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
	for c := range most {
		s.starts[c+1] += s.starts[c]
	}
	return s
}

// induce fills sorted from the LMS suffixes in their order: first the L-type suffixes from left
// to right, then the S-type suffixes from right to left.
func (s *suffixSorter) induce(valleys []int32) {
	n := len(s.text)
	if n == 0 {
		return
	}
	for i := range s.sorted {
		s.sorted[i] = -1
	}
	copy(s.next, s.starts[1:])
	for i := len(valleys) - 1; i >= 0; i-- {
		s.placeLast(valleys[i])
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
	place := make([]int32, len(s.text)) // in valleys, by where they begin
	for i, at := range s.lms {
		place[at] = int32(i)
	}
	names = make([]int32, len(s.lms))
	before := int32(-1)
	for _, at := range s.sorted {
		if at == 0 || !s.sType[at] || s.sType[at-1] {
			continue
		}
		if before < 0 || !s.sameLMS(place[before], place[at]) {
			distinct++
		}
		names[place[at]] = int32(distinct - 1)
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
		return false // the end of the text is less than any number
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
func (s *suffixSorter) lmsEnd(valley int32) int32 {
	if int(valley)+1 < len(s.lms) {
		return s.lms[valley+1] + 1
	}
	return int32(len(s.text)) + 1
}
