package warc

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// A Record is one record of a file.
type Record struct {
	// Version is "1.0" or "1.1".
	Version string
	Header

	// Length is the length of the block in bytes.
	Length int64

	// Offset is where the record begins in the file: with gzip, where its member begins.
	Offset int64

	// Size is the number of bytes that the record has in the file. It is known once Block has
	// ended, or Next was called, and 0 before. It stays 0 for a record that shares its gzip
	// member with others, because the record cannot be read alone.
	Size int64

	// Block is the content, until the next call of Next. Its end is that of the record: Block
	// returns io.EOF only if what follows the content is as the format demands.
	Block io.Reader
}

// A Reader reads the records of a file in their order. It is for one goroutine.
type Reader struct {
	file *counter

	// raw reads file.
	raw *bufio.Reader

	// gzip reads a member from raw, if the file is compressed.
	gzip gzip.Reader

	// data has the records: it is raw, or the content of the current member.
	data   *bufio.Reader
	zipped bool

	// member says that a member is open, so that data may have a further record.
	member bool

	// start is the offset where the next record or the current member begins. whole is what Whole returns.
	start int64
	whole int64

	// count is the number of records that were read from the current member.
	count  int
	record *Record

	// err is the error that Next has returned; nil: Next may be called again.
	err error
}

// bufferSize is the size of each of the two buffers, in bytes.
const bufferSize = 64 << 10

// NewReader returns a Reader for a file. It takes the file for compressed if it begins like a
// gzip member.
func NewReader(r io.Reader) (*Reader, error) {
	file := &counter{r: r}
	raw := bufio.NewReaderSize(file, bufferSize)
	magic, err := raw.Peek(2)
	if err != nil && err != io.EOF {
		return nil, err
	}
	rd := &Reader{file: file, raw: raw, data: raw}
	if rd.zipped = string(magic) == "\x1f\x8b"; rd.zipped {
		rd.data = bufio.NewReaderSize(nil, bufferSize)
	}
	return rd, nil
}

// ForEach calls use for each record of a file, until use or the Reader returns an error. At the end of the file, err is
// nil. whole is the Whole of the Reader.
func ForEach(file io.Reader, use func(*Record) error) (whole int64, err error) {
	r, err := NewReader(file)
	if err != nil {
		return 0, err
	}
	for err == nil {
		var rec *Record
		if rec, err = r.Next(); err == nil {
			err = use(rec)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return r.Whole(), err
}

// Whole returns the offset after the last whole record, or after the last whole gzip member. A
// writer may continue the file there after a crash.
func (r *Reader) Whole() int64 { return r.whole }

// Next reads to the end of the current record and returns the next one. The error is io.EOF at
// the end of the file. It wraps ErrTorn if the file ends inside a record, and names the offset
// where the last whole record ended. After an error, each call returns the same error.
func (r *Reader) Next() (*Record, error) {
	if r.err == nil && r.record != nil {
		_, r.err = io.Copy(io.Discard, r.record.Block)
		r.record = nil
	}
	if r.err == nil {
		r.record, r.err = r.next()
	}
	if r.err != nil {
		return nil, r.err
	}
	return r.record, nil
}

func (r *Reader) next() (*Record, error) {
	if r.zipped && !r.member {
		if err := r.openMember(); err != nil {
			return nil, err
		}
	}
	if !r.zipped {
		if _, err := r.raw.Peek(1); err != nil {
			// io.EOF between two records.
			return nil, err
		}
		r.start = r.offset()
	}
	rec := &Record{Offset: r.start}
	if err := r.readHead(rec); err != nil {
		return nil, r.fail(err)
	}
	length, err := contentLength(rec.Header)
	if err != nil {
		return nil, r.fail(err)
	}
	rec.Length = length
	r.count++
	rec.Block = &block{r: r, rec: rec, left: length}
	return rec, nil
}

// openMember opens the next gzip member that has content.
func (r *Reader) openMember() error {
	for {
		r.start, r.count = r.offset(), 0
		if _, err := r.raw.Peek(1); err != nil {
			// The file ends between two members, or cannot be read.
			return err
		}
		err := r.gzip.Reset(r.raw)
		if err == nil {
			r.gzip.Multistream(false)
			r.data.Reset(&r.gzip)
			_, err = r.data.Peek(1)
		}
		if err == nil {
			r.member = true
			return nil
		}
		if err != io.EOF {
			return r.fail(err)
		}
		r.whole = r.offset()
	}
}

// offset returns how far the file was read.
func (r *Reader) offset() int64 { return r.file.n - int64(r.raw.Buffered()) }

var errMemberEnds = errors.New("the gzip member ends inside a record")

// fail returns the error for a record that cannot be read to its end.
func (r *Reader) fail(err error) error {
	switch {
	case err == io.ErrUnexpectedEOF, err == io.EOF && !r.zipped:
		err = ErrTorn
	case err == io.EOF:
		err = errMemberEnds
	}
	return fmt.Errorf("offset %d: %w", r.whole, err)
}

// finish reads what follows the block of a record.
func (r *Reader) finish(rec *Record) error {
	var end [4]byte
	if n, err := io.ReadFull(r.data, end[:]); !strings.HasPrefix("\r\n\r\n", string(end[:n])) {
		return r.fail(errors.New("no empty lines after the block: Content-Length is wrong"))
	} else if err != nil {
		// This error is that of ReadFull. The next read returns that of gzip.
		if err == io.ErrUnexpectedEOF {
			_, err = r.data.Peek(1)
		}
		return r.fail(err)
	}
	if r.zipped {
		_, err := r.data.Peek(1)
		if err == nil {
			// The member has a further record.
			return nil
		}
		if err != io.EOF {
			return r.fail(err)
		}
		r.member = false
	}
	r.whole = r.offset()
	if r.count == 1 || !r.zipped {
		rec.Size = r.whole - rec.Offset
	}
	return nil
}

// A block reads the content of a record.
type block struct {
	r    *Reader
	rec  *Record
	left int64

	// err is what further reads return; nil: there may be more.
	err error
}

func (b *block) Read(p []byte) (n int, err error) {
	if b.err == nil && b.left == 0 {
		if b.err = b.r.finish(b.rec); b.err == nil {
			b.err = io.EOF
		}
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err = b.r.data.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if err != nil {
		b.err = b.r.fail(err)
	}
	return n, b.err
}

// readHead reads the version and the named fields of a record.
func (r *Reader) readHead(rec *Record) error {
	left := maxHead
	line, err := r.readLine(&left)
	if err != nil {
		return err
	}
	version, ok := strings.CutPrefix(line, "WARC/")
	if !ok || version != "1.0" && version != "1.1" {
		return fmt.Errorf("no record of WARC 1.0 or 1.1 begins here: %.20q", line)
	}
	rec.Version = version
	for {
		line, err := r.readLine(&left)
		switch {
		case err != nil:
			return err
		case line == "":
			return nil
		// The line continues the one before.
		case line[0] == ' ' || line[0] == '\t':
			if len(rec.Header) == 0 {
				return errors.New("the first field has no name")
			}
			last := &rec.Header[len(rec.Header)-1]
			last.Value = strings.TrimSpace(last.Value + " " + strings.Trim(line, " \t"))
			continue
		case len(rec.Header) == maxFields:
			return fmt.Errorf("more than %d fields", maxFields)
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("invalid field: %.40q", line)
		}
		rec.Header = append(rec.Header, Field{name, strings.Trim(value, " \t")})
	}
}

// readLine reads a line that ends with CR LF, which it removes. left is what the head may still
// have, in bytes.
func (r *Reader) readLine(left *int) (string, error) {
	var long []byte
	for {
		part, err := r.data.ReadSlice('\n')
		if *left -= len(part); *left < 0 {
			return "", fmt.Errorf("the head is longer than %d KiB", maxHead>>10)
		}
		if err == bufio.ErrBufferFull {
			long = append(long, part...)
			continue
		}
		if err != nil {
			return "", err
		}
		if long != nil {
			part = append(long, part...)
		}
		line, ok := bytes.CutSuffix(part, []byte("\r\n"))
		if !ok || bytes.ContainsFunc(line, isControl) {
			return "", fmt.Errorf("a line of the head has a control character, or does not end with CR LF: %.40q", line)
		}
		return string(line), nil
	}
}

func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// contentLength returns the length of the block.
func contentLength(h Header) (int64, error) {
	values := h.All("Content-Length")
	if len(values) != 1 {
		return 0, fmt.Errorf("a record must have one Content-Length, got %d", len(values))
	}
	length, err := strconv.ParseUint(values[0], 10, 63)
	if err != nil {
		return 0, fmt.Errorf("invalid Content-Length: %.40q", values[0])
	}
	return int64(length), nil
}

// A counter counts what was read from r.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
