package audit

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

type sink struct {
	err error
	got int
}

func (s *sink) Write(*Record) error { s.got++; return s.err }

func TestFanoutTellsTheFirstErrorAndLeavesNoneOut(t *testing.T) {
	first, second := &sink{err: errors.New("disk")}, &sink{}
	if err := Fanout(first, second).Write(allowed()); err != first.err {
		t.Errorf("got %v", err)
	}
	if second.got != 1 {
		t.Error("the second sink was left out")
	}
}

// TestIDsDoNotCount: no ID tells how many there were before it.
func TestIDsDoNotCount(t *testing.T) {
	seen, ascending := map[string]bool{}, 0
	var last uint64
	const all = 1000
	for range all {
		id := NewID()
		if seen[id] || len(id) > 13 || strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyz") != "" {
			t.Fatalf("%q", id)
		}
		number, _ := strconv.ParseUint(id, 36, 64)
		if number > last {
			ascending++
		}
		seen[id], last = true, number
	}
	if ascending < all/4 || ascending > 3*all/4 {
		t.Errorf("%d of %d are greater than the one before", ascending, all)
	}
}
