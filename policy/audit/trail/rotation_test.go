package trail

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"robotsproxy/robots/testkit"
)

// A trailWriter writes a trail as the proxy does, one step at a time: lines, whole or in two
// parts, a file set aside, a new one, its compression in three steps, the removal of
// the oldest.
type trailWriter struct {
	t     testing.TB
	path  string
	rnd   *rand.Rand
	file  *os.File
	seq   uint64
	prev  Hash
	first uint64 // of the file
	half  []byte // what is still to be written of a line

	aside  []string // files, by their plain names
	zipped int      // so many of them are compressed, or the last of these is going to be:
	part   string   // it is compressed under another name
	zip    string   // or it is there twice
	keep   int      // of the files; 0: all
}

func newTrailWriter(t testing.TB, seed uint64) *trailWriter {
	p := &trailWriter{t: t, path: filepath.Join(t.TempDir(), "audit.jsonl"), rnd: rand.New(rand.NewPCG(seed, 1)), first: 1}
	p.create()
	p.write()
	return p
}

func (p *trailWriter) must(err error) {
	if err != nil {
		p.t.Error(err)
	}
}

func (p *trailWriter) create() {
	var err error
	p.file, err = os.OpenFile(p.path, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600)
	p.must(err)
	p.first = p.seq + 1
}

// write writes a line, or the first part of one, or the second.
func (p *trailWriter) write() {
	line := p.half
	if p.half = nil; line == nil {
		p.seq++
		line, p.prev = seal(p.seq, p.prev, `"client":"`+strings.Repeat("x", p.rnd.IntN(99))+`"`)
		if p.rnd.IntN(8) == 0 {
			n := 1 + p.rnd.IntN(len(line)-1)
			line, p.half = line[:n], line[n:]
		}
	}
	_, err := p.file.Write(line)
	p.must(err)
}

// step does one thing that a proxy might do next.
func (p *trailWriter) step() {
	switch what := p.rnd.IntN(12); {
	case p.file == nil:
		p.create()
	case what == 0 && p.half == nil && p.seq >= p.first:
		p.must(p.file.Close())
		p.file = nil
		p.aside = append(p.aside, SegmentPath(p.path, p.first))
		p.must(os.Rename(p.path, p.aside[len(p.aside)-1]))
	case what == 1 && p.zip != "":
		p.must(os.Remove(p.zip))
		p.zip = ""
	case what == 2 && p.part != "":
		p.must(os.Rename(p.part+".part", p.part+gzipExt))
		p.part, p.zip = "", p.part
	case what <= 3 && p.part+p.zip == "" && p.zipped < len(p.aside):
		p.part = p.aside[p.zipped]
		p.zipped++
		text, err := os.ReadFile(p.part)
		p.must(err)
		p.must(os.WriteFile(p.part+".part", zip(text), 0o600))
	case what == 4 && p.keep > 0 && len(p.aside) > p.keep && p.zipped > 1:
		p.must(os.Remove(p.aside[0] + gzipExt))
		p.aside = p.aside[1:]
		p.zipped--
	default:
		p.write()
	}
}

// A reading checks what a Reader returns.
type reading struct {
	t    testing.TB
	r    *Reader
	last uint64
	gap  bool // ErrRemoved was said
}

// next reads a line, and says whether there was one.
func (g *reading) next() bool {
	line, err := g.r.Next()
	switch {
	case err == io.EOF || errors.Is(err, ErrTorn):
		return false
	case errors.Is(err, ErrRemoved):
		g.gap = true
		return true
	case err != nil:
		g.t.Errorf("%s:%d: %v", line.File, line.Number, err)
		return false
	}
	l, err := ReadLink(line.Text)
	switch {
	case err != nil:
		g.t.Errorf("%s:%d: %v: %q", line.File, line.Number, err, line.Text)
	case l.Seq <= g.last:
		g.t.Errorf("%s:%d: %d is read behind %d", line.File, line.Number, l.Seq, g.last)
	case l.Seq > g.last+1 && g.last > 0 && !g.gap:
		g.t.Errorf("%s:%d: %d to %d are left out", line.File, line.Number, g.last+1, l.Seq-1)
	}
	g.last, g.gap = l.Seq, false
	return true
}

// Whatever the proxy does between one line and the next, each line is read once.
func TestReaderWhileFilesChange(t *testing.T) {
	readWhileFilesChange(t, uint64(testkit.Rounds(30)))
}

// BenchmarkReaderWhileFilesChange is TestReaderWhileFilesChange with more seeds.
func BenchmarkReaderWhileFilesChange(b *testing.B) {
	for b.Loop() {
		// synctest.Test needs a *testing.T
		if !testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "files", F: func(t *testing.T) {
			readWhileFilesChange(t, 100)
		}}}) {
			b.Fatal("failed")
		}
	}
}

func readWhileFilesChange(t *testing.T, seeds uint64) {
	for _, keep := range []int{0, 1, 3} {
		for seed := range seeds {
			synctest.Test(t, func(t *testing.T) { readOneWhileFilesChange(t, keep, seed) }) // the wait for the end of a line takes no time
		}
	}
}

func readOneWhileFilesChange(t *testing.T, keep int, seed uint64) {
	p := newTrailWriter(t, seed)
	p.keep = keep
	r, err := Open(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	g := &reading{t: t, r: r}
	for range 400 {
		if p.rnd.IntN(2) == 0 {
			p.step()
		} else {
			g.next()
		}
	}
	for p.half != nil || p.file == nil {
		p.step()
	}
	p.must(p.file.Close())
	for g.next() {
	}
	if g.last != p.seq || t.Failed() {
		t.Fatalf("keep %d, seed %d: read up to %d of %d", keep, seed, g.last, p.seq)
	}
}

// The same with a writer that does not wait for the reader, and a verification.
func TestReaderBesideWriter(t *testing.T) {
	rounds := uint64(6)
	if testing.Short() {
		rounds = 3
	}
	for seed := range rounds {
		p := newTrailWriter(t, seed)
		p.keep = int(seed % 3)
		r, err := Open(p.path)
		if err != nil {
			t.Fatal(err)
		}
		g := &reading{t: t, r: r}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range testkit.Rounds(2000) {
				p.step()
			}
			for p.half != nil || p.file == nil {
				p.step()
			}
			p.must(p.file.Close())
		}()
		for over := false; !over; {
			select {
			case <-done:
				over = true
			default:
			}
			for g.next() {
			}
			_, err := verify(t, p.path, Anchor{})
			if f, ok := errors.AsType[*Fault](err); err != nil && !(ok && f.Kind == "torn") { // a writer may be held up for long
				t.Errorf("seed %d: %v", seed, err)
			}
		}
		r.Close()
		if g.last != p.seq || t.Failed() {
			t.Fatalf("seed %d: read up to %d of %d", seed, g.last, p.seq)
		}
	}
}
