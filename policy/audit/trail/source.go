package trail

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// A line without an end may be one that is being written: so often, and after so long
// each time, it is read again.
const (
	tornTries = 10
	tornDelay = 20 * time.Millisecond
)

// A source is a file of a trail, or a stream.
type source struct {
	Segment
	in     *bufio.Reader
	closer io.Closer
	size   int64    // when it was opened
	plain  *os.File // what may grow and be read again; nil: it is compressed, or no regular file
	at     int64    // where in plain the next line begins
	number int      // of the line that was read last; -1: the reading did not begin with the first
	torn   bool     // the line at at was given as torn
	over   bool     // what comes is the rest of a line that is not given
}

// openSource opens a file of the trail, to be read through in.
func openSource(f Segment, in *bufio.Reader) (*source, error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	s := &source{Segment: f, in: in, closer: file, size: info.Size()}
	var from io.Reader = file
	switch {
	case f.Gzip:
		if from, err = gzip.NewReader(bufio.NewReader(file)); err != nil {
			file.Close()
			return nil, s.unreadable(err)
		}
	case info.Mode().IsRegular():
		s.plain = file
	}
	in.Reset(from)
	return s, nil
}

// unreadable is the error of a file that a line cannot be had from.
func (s *source) unreadable(err error) error {
	switch {
	case s.plain != nil:
		return err // which names the file
	case s.Gzip && err == io.EOF: // there is not even the beginning
		err = io.ErrUnexpectedEOF
		fallthrough
	case s.Gzip:
		err = fmt.Errorf("it cannot be decompressed: %w", err)
	}
	return fmt.Errorf("%s: %w", s.Path, err)
}

// skipTo goes to the first line that begins at an offset or behind it.
func (s *source) skipTo(offset int64) error {
	if offset == 0 {
		return nil
	}
	s.at, s.number, s.over = offset-1, -1, true // up to the line feed before
	return s.rewind()
}

// rewind has the line at s.at read, or read again.
func (s *source) rewind() error {
	_, err := s.plain.Seek(s.at, io.SeekStart)
	s.in.Reset(s.plain)
	return err
}

// next gives the next line without its line feed: io.EOF at the end, where more may
// be written; ErrTorn, with what is there of the line, or ErrTooLong, both once.
func (s *source) next() ([]byte, error) {
	for try := 0; ; {
		text, err := s.in.ReadSlice('\n')
		switch {
		case err == nil && s.over:
			s.at += int64(len(text))
			s.over = false
			continue
		case err == nil:
			s.step(len(text))
			return text[:len(text)-1], nil
		case errors.Is(err, bufio.ErrBufferFull) && s.over, err == io.EOF && s.over && len(text) > 0:
			s.at += int64(len(text))
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			s.step(len(text))
			s.over = true
			return nil, ErrTooLong
		case err != io.EOF:
			return nil, s.unreadable(err)
		case s.plain == nil && len(text) > 0:
			s.step(len(text))
			return text, ErrTorn
		case s.plain == nil:
			return nil, io.EOF
		}
		again, err := s.end(len(text) > 0, try)
		if err == ErrTorn {
			return text, err
		}
		if !again {
			return nil, err
		}
		if len(text) > 0 {
			try++
		}
	}
}

// step counts a line.
func (s *source) step(octets int) {
	s.at += int64(octets)
	s.torn = false
	if s.number >= 0 {
		s.number++
	}
}

// place is the number of the line that was read last, or that is torn; 0: unknown.
func (s *source) place() int {
	if s.torn && s.number >= 0 {
		return s.number + 1
	}
	return max(0, s.number)
}

// end says whether to read again at the end of a regular file, which may be within a
// line; else with what error to end.
func (s *source) end(within bool, try int) (again bool, err error) {
	if within {
		if err := s.rewind(); err != nil {
			return false, err
		}
		switch {
		case s.torn: // that has been told
			return false, io.EOF
		case try == tornTries:
			s.torn = true
			return false, ErrTorn
		}
		<-time.After(tornDelay)
		return true, nil
	}
	info, err := s.plain.Stat()
	switch {
	case err != nil:
		return false, err
	case info.Size() >= s.at:
		return false, io.EOF
	}
	s.at, s.number, s.torn, s.over = 0, 0, false, false // emptied, and written anew
	return true, s.rewind()
}
