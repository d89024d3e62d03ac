package archive

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"os"
	"sync"
	"time"

	"robotsproxy/policy/memory"
	"robotsproxy/policy/osfile"
)

const (
	// spoolBodies is how many bodies of Options.MaxBody the files of bodies that are not complete may take. They
	// may take leastSpool bytes if that is more, but not more than half of what the disk has left.
	spoolBodies = 8
	leastSpool  = 256 << 20
	// maxInMemory is how many bytes of a body are kept in memory; the bytes of a larger one are in a file.
	maxInMemory = 256 << 10
	// freeInMemory is how many of these bytes count as part of a request, and need no share of the memory budget.
	freeInMemory = 16 << 10
	// spoolPrefix begins the names of the files of bodies.
	spoolPrefix = ".body-"
)

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// spools are the files of bodies that are not complete, and the space that they take.
type spools struct {
	dir  string
	disk *osfile.Watch

	// space is the space of the files. Its unit is bytes on the disk, not in memory.
	space *memory.Budget
}

// create creates a file for a body of client, of which at most maxBody bytes are kept.
func (s *spools) create(client string, maxBody int64) (file *os.File, space memory.Work, err error) {
	defer s.disk.Begin(osfile.MaxWrite).End()
	limit := max(spoolBodies*maxBody, leastSpool)
	if free, err := osfile.Free(s.dir); err == nil {
		limit = min(limit, (free+s.space.Stats().Held)/2)
	}
	s.space.SetLimit(max(1, limit))
	if space, err = s.space.Begin(client, time.Now()); err != nil {
		return nil, space, errNoSpool
	}
	file, err = os.CreateTemp(s.dir, spoolPrefix+"*")
	return file, space, err
}

// probe returns why a file cannot be written; nil: it can.
func (s *spools) probe() error {
	f, err := os.CreateTemp(s.dir, spoolPrefix+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, maxInMemory))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// A spool keeps a body until its record is written. One goroutine uses it at a time.
type spool struct {
	spools *spools

	// client is the client against whose share of the space the file counts.
	client string

	// spare takes bytes of the memory budget, and reports whether the budget has them; nil: the body is small. held says
	// that spare has taken maxInMemory bytes.
	spare func(int64) bool
	held  bool

	// max is how many bytes are kept; the rest is left out. size is how many there are.
	max  int64
	size int64

	// memory has the body; nil: the body is empty, or in the file.
	memory *bytes.Buffer

	// file has the body; nil: the body is in memory. space is what the file takes.
	file  *os.File
	space memory.Work

	// payload is the hash of all bytes; nil: there are none.
	payload hash.Hash

	// block is the hash of the head of the message and all bytes; nil: the head is not known yet.
	block hash.Hash

	// truncated is why the end of the body is missing, as WARC-Truncated has it; "": it is not missing.
	truncated string

	// err is why the body could not be kept.
	err error
}

// begin sets the head of the message whose body follows.
func (s *spool) begin(head []byte) {
	s.block = sha256.New()
	s.block.Write(head)
}

// Write adds to the body. It returns an error after the first failure.
func (s *spool) Write(b []byte) (int, error) {
	if left := s.max - s.size; int64(len(b)) > left {
		s.truncated = "length"
		b = b[:left]
	}
	if len(b) == 0 || s.err != nil {
		return 0, s.err
	}
	if s.payload == nil {
		s.payload = sha256.New()
	}
	s.payload.Write(b)
	if s.block != nil {
		s.block.Write(b)
	}
	if s.err = s.keep(b); s.err == nil {
		s.size += int64(len(b))
	}
	return len(b), s.err
}

func (s *spool) keep(b []byte) error {
	if s.file == nil && s.inMemory(int64(len(b))) {
		if s.memory == nil {
			s.memory = bodies.Get().(*bytes.Buffer)
		}
		s.memory.Write(b)
		return nil
	}
	if s.file == nil {
		if err := s.toFile(); err != nil {
			return err
		}
	}
	if err := s.space.Hold(int64(len(b))); err != nil {
		return errNoSpool
	}
	defer s.spools.disk.Begin(osfile.MaxWrite).End()
	_, err := s.file.Write(b)
	return err
}

// errNoSpool is the error for a body that finds no space for its file.
var errNoSpool = &exchangeError{"bodies that are not complete take all the space that they may, or the share of the client"}

// inMemory reports whether n more bytes may be kept in memory.
func (s *spool) inMemory(n int64) bool {
	switch {
	case s.size+n > maxInMemory:
		return false
	case s.size+n <= freeInMemory || s.held || s.spare == nil:
		return true
	}
	s.held = s.spare(maxInMemory)
	return s.held
}

// toFile moves the body to a file.
func (s *spool) toFile() (err error) {
	if s.file, s.space, err = s.spools.create(s.client, s.max); err != nil || s.memory == nil {
		return err
	}
	if err := s.space.Hold(int64(s.memory.Len())); err != nil {
		return errNoSpool
	}
	_, err = s.memory.WriteTo(s.file)
	s.freeMemory()
	return err
}

func (s *spool) freeMemory() {
	// After an error, WriteTo leaves the rest in the buffer.
	s.memory.Reset()
	bodies.Put(s.memory)
	s.memory = nil
}

// reader returns a reader of the whole body.
func (s *spool) reader() io.Reader {
	switch {
	case s.file != nil:
		return io.NewSectionReader(s.file, 0, s.size)
	case s.memory != nil:
		return bytes.NewReader(s.memory.Bytes())
	}
	return bytes.NewReader(nil)
}

// digest returns the SHA-256 of the body.
func (s *spool) digest() (d Digest) {
	if s.payload == nil {
		return sha256.Sum256(nil)
	}
	s.payload.Sum(d[:0])
	return d
}

// blockDigest returns the SHA-256 of the message: head and body.
func (s *spool) blockDigest(head []byte) (d Digest, err error) {
	block := s.block
	if block == nil {
		block = sha256.New()
		block.Write(head)
		_, err = io.Copy(block, s.reader())
	}
	block.Sum(d[:0])
	return d, err
}

// close frees what the spool has.
func (s *spool) close() error {
	if s.memory != nil {
		s.freeMemory()
	}
	s.space.End()
	if s.file == nil {
		return nil
	}
	file := s.file
	s.file = nil
	return errors.Join(file.Close(), os.Remove(file.Name()))
}
