package report

// spans collect something over time, in buckets of the same width. They make the buckets wider when there would be more than
// most. Make them with newSpans.
type spans[B any] struct {
	// width is in seconds.
	width int64
	most  int64

	// buckets are by their start, in seconds since 1970.
	buckets map[int64]*B

	// first and last are the first and the last start.
	first, last int64

	// merge adds a bucket to another one.
	merge func(into, other *B)
}

func newSpans[B any](most int64, merge func(into, other *B)) spans[B] {
	return spans[B]{width: nextWidth(0), most: most, buckets: map[int64]*B{}, merge: merge}
}

// widths are the widths of buckets, in seconds. Each is a multiple of the previous one. Whole
// days follow, which double.
var widths = []int64{1, 5, 15, 30, 60, 5 * 60, 15 * 60, 30 * 60, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600}

// nextWidth returns the width after a width in seconds.
func nextWidth(width int64) int64 {
	for _, w := range widths {
		if w > width {
			return w
		}
	}
	return 2 * width
}

// at returns the bucket of a time in seconds since 1970, which must not be negative.
func (s *spans[B]) at(unix int64) *B {
	at := s.start(unix)
	if len(s.buckets) == 0 {
		s.first, s.last = at, at
	}
	for s.first, s.last = min(s.first, at), max(s.last, at); (s.last-s.first)/s.width >= s.most; {
		s.widen()
		at = s.start(at)
	}
	b := s.buckets[at]
	if b == nil {
		b = new(B)
		s.buckets[at] = b
	}
	return b
}

// start returns the start of the bucket that has a time.
func (s *spans[B]) start(at int64) int64 { return at - at%s.width }

func (s *spans[B]) widen() {
	s.width = nextWidth(s.width)
	s.first, s.last = s.start(s.first), s.start(s.last)
	narrow := s.buckets
	s.buckets = make(map[int64]*B, len(narrow))
	for at, b := range narrow {
		at = s.start(at)
		if wide := s.buckets[at]; wide != nil {
			s.merge(wide, b)
			continue
		}
		s.buckets[at] = b
	}
}
