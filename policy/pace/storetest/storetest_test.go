package storetest

import (
	"slices"
	"testing"
	"testing/synctest"

	"robotsproxy/policy/pace"
)

func TestMemoryIsAStore(t *testing.T) {
	Store(t, func(_ *testing.T, n int) []pace.Store {
		m := NewMemory(n)
		var all []pace.Store
		for range n {
			all = append(all, m.Join())
		}
		return all
	})
}

func TestPacersShareAMemory(t *testing.T) {
	Pacers(t, synctest.Test, func(_ *testing.T, n int) []*pace.Pacer {
		m := NewMemory(n)
		var all []*pace.Pacer
		for range n {
			s := m.Join()
			p := pace.New(pace.Options{Store: s})
			s.Notify(p)
			all = append(all, p)
		}
		return all
	})
}

func TestOnePacer(t *testing.T) {
	Pacers(t, synctest.Test, func(_ *testing.T, n int) []*pace.Pacer {
		return slices.Repeat([]*pace.Pacer{pace.New(pace.Options{})}, n)
	})
}
