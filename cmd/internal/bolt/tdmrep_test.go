package bolt

import (
	"testing"
	"time"

	"robotsproxy/robots/cache"
	"robotsproxy/robots/cache/storetest"
)

func TestTDMRepStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) cache.Store { return started(t, open(t, stateFile(t), t.Output())).TDMRep() })
}

// TestTDMRepIsKeptApart: what is saved for the two files of an origin is kept apart, also in the file.
func TestTDMRepIsKeptApart(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	s := open(t, file, t.Output())
	fill(t, s, 3)
	for _, i := range []int{1, 5} {
		s.TDMRep().Save(site(i), []byte("tdm"), time.Now().Add(time.Hour), "someone")
	}
	s.Close()
	s = open(t, file, t.Output())
	defer s.Close()
	for i, has := range []string{1: "tdm", 2: "", 5: "tdm"} {
		if got, err := s.TDMRep().Load(t.Context(), site(i)); err != nil || string(got) != has {
			t.Errorf("%v: %q, %v; want %q", site(i), got, err, has)
		}
	}
	want(t, s, 1, text(1))
	want(t, s, 5, nil)
}

// TestGreedyClientsTDMRepGoesFirst: a client that has many tdmrep.json files fetched does not push out
// the robots.txt files of others.
func TestGreedyClientsTDMRepGoesFirst(t *testing.T) {
	t.Parallel()
	s := bounded(t, stateFile(t), 4<<20)
	defer s.Close()
	fill(t, s, 40)
	for i := range 2000 {
		s.TDMRep().Save(site(i), make([]byte, 5000), time.Now().Add(24*time.Hour), "greedy")
		if i%100 == 99 {
			if err := s.commit(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 40 {
		want(t, s, i, text(i))
	}
}
