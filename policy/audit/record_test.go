package audit

import (
	"errors"
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

func TestIDsDiffer(t *testing.T) {
	a, b := NewIDs(), NewIDs()
	seen := map[string]bool{}
	for range 100 {
		for _, id := range []string{a.Next(), b.Next()} {
			if seen[id] || strings.ContainsAny(id, " \"\\") {
				t.Fatalf("%q", id)
			}
			seen[id] = true
		}
	}
}
