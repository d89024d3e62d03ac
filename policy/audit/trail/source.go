package trail

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"robotsproxy/policy/osfile"
)

// These are the errors of a Reader about one line.
var (
	// ErrTorn is the error for a last line without a line feed.
	ErrTorn = errors.New("incomplete line")
	// ErrTooLong is the error for a line of more than MaxLine bytes.
	ErrTooLong = fmt.Errorf("longer than %d bytes", MaxLine)
)

// A line without an end may be one that is being written. A source reads it again tornTries
// times, tornDelay apart, before it returns ErrTorn.
const (
	tornTries = 10
	tornDelay = 20 * time.Millisecond
)

// A source is an open segment, or a stream.
type source struct {
	Segment
	in     *bufio.Reader
	closer io.Closer

	// size is how many bytes it had when it was opened.
	size int64

	// plain is a regular file that is not compressed: it may grow, and be read again. Of other segments and of streams, it is
	// nil.
	plain *os.File

	// offset is where in plain the next line begins.
	offset int64

	// number is that of the last line that was read; -1: unknown.
	number int

	// torn reports that the line at offset was returned with ErrTorn.
	torn bool

	// skipping reports that the rest of a line is skipped.
	skipping bool
}

// openSource opens a segment, which is read through in.
func openSource(segment Segment, in *bufio.Reader) (*source, error) {
	file, err := osfile.Open(segment.Path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	s := &source{Segment: segment, in: in, closer: file, size: info.Size()}
	var from io.Reader = file
	switch {
	case segment.Gzip:
		if from, err = gzip.NewReader(bufio.NewReader(file)); err != nil {
			file.Close()
			return nil, s.readError(err)
		}
	case info.Mode().IsRegular():
		s.plain = file
	}
	in.Reset(from)
	return s, nil
}

// readError wraps an error of reading, so that it names the segment.
func (s *source) readError(err error) error {
	switch {
	case s.plain != nil:
		// A *fs.PathError names the segment already.
		return err
	case s.Gzip && err == io.EOF:
		// Even the gzip header is missing.
		err = io.ErrUnexpectedEOF
		fallthrough
	case s.Gzip:
		err = fmt.Errorf("decompress: %w", err)
	}
	return fmt.Errorf("%s: %w", s.Path, err)
}

// skipTo moves to the first line that begins at offset or later.
func (s *source) skipTo(offset int64) error {
	if offset == 0 {
		return nil
	}
	// What ends at the next line feed is skipped; the byte before offset may be that line feed.
	s.offset, s.number, s.skipping = offset-1, -1, true
	return s.rewind()
}

// rewind moves back to the line at s.offset.
func (s *source) rewind() error {
	_, err := s.plain.Seek(s.offset, io.SeekStart)
	s.in.Reset(s.plain)
	return err
}

// next returns the next line without its line feed. The error is io.EOF at the end, where
// lines may be added later, ErrTorn with the part of the line that is there, or ErrTooLong.
// It returns ErrTorn and ErrTooLong once for a line.
func (s *source) next() ([]byte, error) {
	for try := 0; ; {
		text, err := s.in.ReadSlice('\n')
		switch {
		case err == nil && s.skipping:
			s.offset += int64(len(text))
			s.skipping = false
			continue
		case err == nil:
			s.count(len(text))
			return text[:len(text)-1], nil
		case errors.Is(err, bufio.ErrBufferFull) && s.skipping, err == io.EOF && s.skipping && len(text) > 0:
			s.offset += int64(len(text))
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			s.count(len(text))
			s.skipping = true
			return nil, ErrTooLong
		case err != io.EOF:
			return nil, s.readError(err)
		case s.plain == nil && len(text) > 0:
			s.count(len(text))
			return text, ErrTorn
		case s.plain == nil:
			return nil, io.EOF
		}
		again, err := s.atEnd(len(text) > 0, try)
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

// count counts a line of size bytes.
func (s *source) count(size int) {
	s.offset += int64(size)
	s.torn = false
	if s.number >= 0 {
		s.number++
	}
}

// lineNumber returns the number of the last line that was read, or of the torn line; 0: unknown.
func (s *source) lineNumber() int {
	if s.torn && s.number >= 0 {
		return s.number + 1
	}
	return max(0, s.number)
}

// atEnd is called at the end of a regular file; within reports that the end is within a line.
// It returns whether to read again, or the error for the caller.
func (s *source) atEnd(within bool, try int) (again bool, err error) {
	if within {
		if err := s.rewind(); err != nil {
			return false, err
		}
		switch {
		case s.torn:
			// ErrTorn was returned before.
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
	case info.Size() >= s.offset:
		return false, io.EOF
	}
	// The file was truncated, and written again.
	s.offset, s.number, s.torn, s.skipping = 0, 0, false, false
	return true, s.rewind()
}

// Began returns when the first line of a segment was written; the zero Time if there is none.
func Began(s Segment) (time.Time, error) {
	e, err := First(s)
	return e.End(), err
}

// First returns the content of the first line of a segment; the zero Entry if there is none.
func First(s Segment) (Entry, error) {
	src, err := openSource(s, bufio.NewReader(nil))
	if err != nil {
		return Entry{}, err
	}
	defer src.closer.Close()
	line, err := FirstLine(src.in)
	if err != nil && err != io.EOF {
		return Entry{}, src.readError(err)
	}
	e, err := Read(line)
	if err != nil {
		return Entry{}, nil
	}
	return e, nil
}
