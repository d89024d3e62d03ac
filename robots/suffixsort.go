package robots

// sortSuffixes gives the starts of the suffixes of a path, in the order of their
// text. Its time is proportional to the path's length, whatever the path is.
func sortSuffixes(path string) []int32 {
	text := make([]int32, len(path))
	for i := range text {
		text[i] = int32(path[i])
	}
	return sortByInducing(text, 256)
}

// sortByInducing sorts the suffixes of a text of numbers below most, by the
// algorithm SA-IS (Nong, Zhang and Chan, 2009): it sorts the substrings between
// the valleys of the text, names them by their order, sorts the shorter text of
// names in the same way, and induces the order of all suffixes from that of the
// valleys.
func sortByInducing(text []int32, most int) []int32 {
	s := newSuffixSorter(text, most)
	if len(s.valleys) == 0 {
		s.induce(nil)
		return s.sorted
	}
	s.induce(s.valleys)
	names, distinct := s.nameValleys()
	byRank := sortByInducing(names, distinct)
	for rank, i := range byRank {
		byRank[rank] = s.valleys[i]
	}
	s.induce(byRank)
	return s.sorted
}

// A suffixSorter is one level of sortByInducing.
type suffixSorter struct {
	text    []int32
	rising  []bool  // the suffix is less than the one that begins one later
	valleys []int32 // the rising suffixes whose predecessor is not, in text order
	starts  []int32 // where in sorted the suffixes that begin with each number are
	next    []int32 // the next free place of each number; for induce
	sorted  []int32
}

func newSuffixSorter(text []int32, most int) *suffixSorter {
	n := len(text)
	s := &suffixSorter{
		text: text, rising: make([]bool, n), sorted: make([]int32, n),
		starts: make([]int32, most+1), next: make([]int32, most),
	}
	for i := n - 2; i >= 0; i-- {
		s.rising[i] = text[i] < text[i+1] || text[i] == text[i+1] && s.rising[i+1]
	}
	for i := 1; i < n; i++ {
		if s.rising[i] && !s.rising[i-1] {
			s.valleys = append(s.valleys, int32(i))
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

// induce fills sorted from valleys in their order: first the falling suffixes
// from left to right, then the rising ones from right to left.
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
		if at > 0 && !s.rising[at-1] {
			s.placeFirst(at - 1)
		}
	}
	copy(s.next, s.starts[1:])
	for i := n - 1; i >= 0; i-- {
		if at := s.sorted[i]; at > 0 && s.rising[at-1] {
			s.placeLast(at - 1)
		}
	}
}

// placeFirst puts a suffix at the first free place for its first number.
func (s *suffixSorter) placeFirst(at int32) {
	c := s.text[at]
	s.sorted[s.next[c]] = at
	s.next[c]++
}

// placeLast puts a suffix at the last free place for its first number.
func (s *suffixSorter) placeLast(at int32) {
	c := s.text[at]
	s.next[c]--
	s.sorted[s.next[c]] = at
}

// nameValleys gives each valley, in text order, the rank of the substring from
// it to the next valley, and how many ranks there are. sorted is in the order
// of these substrings.
func (s *suffixSorter) nameValleys() (names []int32, distinct int) {
	place := make([]int32, len(s.text)) // in valleys, by where they begin
	for i, at := range s.valleys {
		place[at] = int32(i)
	}
	names = make([]int32, len(s.valleys))
	before := int32(-1)
	for _, at := range s.sorted {
		if at == 0 || !s.rising[at] || s.rising[at-1] {
			continue
		}
		if before < 0 || !s.alike(place[before], place[at]) {
			distinct++
		}
		names[place[at]] = int32(distinct - 1)
		before = at
	}
	return names, distinct
}

// alike reports whether the substrings of two valleys, each up to the next valley
// inclusive, are the same.
func (s *suffixSorter) alike(a, b int32) bool {
	from, to := s.valleys[a], s.end(a)
	other, end := s.valleys[b], s.end(b)
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

// end gives where the substring of a valley ends; for the last valley beyond the text.
func (s *suffixSorter) end(valley int32) int32 {
	if int(valley)+1 < len(s.valleys) {
		return s.valleys[valley+1] + 1
	}
	return int32(len(s.text)) + 1
}
