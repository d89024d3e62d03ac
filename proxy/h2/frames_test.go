package h2

import "testing"

// TestTracker checks that a Tracker finds the same frames however the bytes are split.
func TestTracker(t *testing.T) {
	const skipped = "preface"
	stream := skipped + "\x00\x00\x03\x00\x09\x00\x00\x00\x01abc" + "\x00\x00\x00\x01\x05\x80\x00\x00\x03" + "\x00\x01\x00\x09\x04\x00\x00\x00\x03" + string(make([]byte, 256))
	want := []struct {
		kind   byte
		flags  byte
		size   int
		stream uint32
	}{{Data, Padded | EndStream, 3, 1}, {Headers, EndHeaders | EndStream, 0, 3}, {Continuation, EndHeaders, 256, 3}}
	for size := 1; size <= len(stream); size++ {
		var f Tracker
		f.Skip(len(skipped))
		begun := 0
		for rest := []byte(stream); len(rest) > 0; {
			n, begins := f.Next(rest[:min(size, len(rest))])
			rest = rest[n:]
			if !begins {
				continue
			}
			if w := want[begun]; f.Type() != w.kind || !f.Has(w.flags) || f.Size() != w.size || StreamOf(f.Head[:]) != w.stream {
				t.Errorf("in pieces of %d bytes: frame %d is % x", size, begun, f.Head)
			}
			if begun++; f.Whole() != (f.Size() == 0) {
				t.Errorf("in pieces of %d bytes: Whole is %v after the head of frame %d", size, f.Whole(), begun)
			}
		}
		if begun != len(want) || !f.Whole() {
			t.Errorf("in pieces of %d bytes: %d frames, whole: %v", size, begun, f.Whole())
		}
	}
}
