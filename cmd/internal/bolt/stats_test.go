package bolt

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestStats(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	s := open(t, file, t.Output())
	until := time.Now().Add(time.Hour)
	s.Save(site(1), text(1), until, "someone")
	if got := s.Stats(); got.Pending < len(text(1)) || got.Bytes == 0 {
		t.Errorf("%+v", got)
	}
	for i := range 1000 {
		s.Save(site(i), text(i), until, "someone")
	}
	if err := s.commit(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Stats(), (Stats{Bytes: info.Size()}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	s.Close()
	put(t, file, []byte("no store at all"))
	s = open(t, file, t.Output())
	defer s.Close()
	if got := s.Stats(); got.Damaged != 1 || got.Failures != 0 || got.Bytes == 0 {
		t.Errorf("%+v", got)
	}
}

// While there is no file: what fails and what is lost is counted, and nobody waits.
func TestStatsOfFailures(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "gone", "state.db"), t.Output())
	defer s.Close()
	s.turn <- struct{}{} // as a caller that waits for the disk does
	whole := make([]byte, 1<<20)
	for i := range maxPending/len(whole) + 5 {
		s.Save(site(i), whole, time.Now().Add(time.Hour), "someone")
	}
	if got := s.Stats(); got.Lost == 0 || got.Pending > maxPending || got.Failures != 1 {
		t.Errorf("%+v", got)
	}
	<-s.turn
}
