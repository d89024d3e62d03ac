package warc

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// An Erasure says what Erase has found. IDs are those of records to erase; true: a file has it.
type Erasure struct {
	IDs map[string]bool

	// Changed is the number of records that differ in the copies, Captures that of the records with these IDs among them, and
	// Orphans that of the revisits that refer to them, and so lose their payload.
	Changed, Captures, Orphans int
}

// Erase copies a file of size bytes to w, without what it says of the records in IDs. Blank records (see [Header.IsBlank]) replace
// these records, and those that name them in WARC-Concurrent-To, with the same size, ID and date, so that all other records stay
// where they are. Revisits that refer to them lose the path and the query of their WARC-Refers-To-Target-URI, or become blank
// if they then do not fit. An incomplete record at the end of the file is copied too, unless it would be replaced. changed says
// whether the copy differs. The error is that of a part that cannot be read, or of a record that cannot be replaced.
func (e *Erasure) Erase(w io.Writer, file io.ReaderAt, size int64) (changed bool, err error) {
	r, err := NewReader(io.NewSectionReader(file, 0, size))
	if err != nil {
		return false, err
	}
	at, before := int64(0), e.Changed
	for {
		rec, err := r.Next()
		if err == io.EOF || errors.Is(err, ErrTorn) {
			break
		}
		if err != nil {
			return false, err
		}
		x, err := e.replacementOf(rec)
		if x == nil && err == nil {
			continue
		}
		e.Changed++
		if err == nil {
			_, err = io.Copy(io.Discard, rec.Block)
		}
		if errors.Is(err, ErrTorn) {
			size = rec.Offset
			break
		}
		if err == nil {
			_, err = io.Copy(w, io.NewSectionReader(file, at, rec.Offset-at))
		}
		if err == nil {
			err = x.fit(w, rec.Size, r.zipped)
		}
		if err != nil {
			return false, fmt.Errorf("record at offset %d: %w", rec.Offset, err)
		}
		at = rec.Offset + rec.Size
	}
	_, err = io.Copy(w, io.NewSectionReader(file, at, size-at))
	return e.Changed > before, err
}

// IsBlank reports whether Erase has written the record. It has no URL.
func (h Header) IsBlank() bool {
	return h.Type() == TypeMetadata && h.Get("WARC-Target-URI") == "" && h.Get(concurrentTo) == "" && h.Get(refersTo) == ""
}

// A replacement is the record that replaces another one.
type replacement struct {
	head, block []byte

	// blank says that the head lacks its Content-Length, and that the block may have any length.
	blank bool

	// of is the record. A blank one replaces it if this does not fit.
	of *Record
}

// replacementOf returns what replaces a record; nil: it stays as it is.
func (e *Erasure) replacementOf(rec *Record) (*replacement, error) {
	named := func(id string) bool {
		_, is := e.IDs[id]
		return is
	}
	if named(rec.ID()) {
		e.IDs[rec.ID()] = true
	}
	switch {
	case rec.IsBlank():
		return nil, nil
	case named(rec.ID()) || slices.ContainsFunc(rec.All(concurrentTo), named):
		if named(rec.ID()) {
			e.Captures++
		}
		return blankFor(rec), nil
	case !named(rec.Get(refersTo)):
		return nil, nil
	}
	e.Orphans++
	uri := rec.Get(refersToURI)
	if maskPath(uri) == uri {
		return nil, nil
	}
	if rec.Length > maxRevisit {
		return blankFor(rec), nil
	}
	masked := slices.Clone(rec.Header)
	for i := range masked {
		if strings.EqualFold(masked[i].Name, refersToURI) {
			masked[i].Value = maskPath(masked[i].Value)
		}
	}
	x := replacement{head: AppendHead(nil, rec.Version, masked), of: rec}
	var err error
	x.block, err = io.ReadAll(rec.Block)
	return &x, err
}

// blankFor returns the blank record in place of another one.
func blankFor(rec *Record) *replacement {
	head := AppendField(AppendType(nil, TypeMetadata), "WARC-Record-ID", rec.ID())
	head = AppendField(head, "WARC-Date", rec.Get("WARC-Date"))
	return &replacement{head: AppendField(head, "Content-Type", Fields), of: rec, blank: true}
}

// maskPath replaces each byte of the path and the query of a URL, behind the first, by an x.
func maskPath(uri string) string {
	_, rest, _ := strings.Cut(uri, "://")
	i := strings.IndexAny(rest, "/?")
	if i < 0 {
		return uri
	}
	hidden := len(rest) - i - 1
	return uri[:len(uri)-hidden] + strings.Repeat("x", hidden)
}

const (
	// maxRevisit is the length of the longest block of a revisit, in bytes, that is copied.
	maxRevisit = 1 << 20

	// maxExtra is the size of the largest record, in bytes of the file, that an extra field alone pads. An extra field has at most
	// 65,535 bytes (RFC 1952 2.3.1.1).
	maxExtra = 60_000

	// storedBlock is the length of the longest block that is stored, and storedHead that of its head (RFC 1951 3.2.4).
	storedBlock, storedHead = 65535, 5

	// memberEnds are the bytes before and after the blocks of a gzip member, with the length of its extra field.
	memberEnds = 10 + 2 + 8
)

// fit writes the record with size bytes, of which it fills a part with what says nothing.
func (r *replacement) fit(w io.Writer, size int64, zipped bool) error {
	var least writeCounter
	// A counter returns no error.
	_ = r.write(&least, 0)
	left := size - int64(least)
	switch {
	case size == 0:
		return errors.New("it shares its gzip member with others")
	case !zipped && left != 0 && !r.blank:
		return blankFor(r.of).fit(w, size, zipped)
	case !zipped && left < 0:
		return errTooSmall
	case !zipped:
		return r.write(w, left)
	case size <= maxExtra || !r.blank:
		return r.zip(w, gzip.BestCompression, 0, size)
	}
	// What is stored has about the size of the content.
	return r.zip(w, gzip.NoCompression, left-memberEnds-storedHead*(size/storedBlock+3), size)
}

// write writes the record with spaces at the end of its block.
func (r *replacement) write(w io.Writer, spaces int64) error {
	head := r.head
	if r.blank {
		// It has the same length for each length of the block.
		head = fmt.Appendf(nil, "%sContent-Length: %019d\r\n\r\n", head, int64(len(r.block))+spaces)
	}
	_, err := w.Write(append(head[:len(head):len(head)], r.block...))
	chunk := bytes.Repeat([]byte(" "), 32<<10)
	for left := spaces; left > 0 && err == nil; left -= int64(len(chunk)) {
		_, err = w.Write(chunk[:min(left, int64(len(chunk)))])
	}
	if err == nil {
		_, err = io.WriteString(w, End)
	}
	return err
}

// zip writes the record as a gzip member of exactly size bytes. An extra field, which readers skip, pads it.
func (r *replacement) zip(w io.Writer, level int, spaces, size int64) error {
	member := func(w io.Writer, extra []byte) error {
		// The level is valid.
		zip, _ := gzip.NewWriterLevel(w, level)
		zip.Extra = extra
		if err := r.write(zip, spaces); err != nil {
			return err
		}
		return zip.Close()
	}
	var least writeCounter
	// An empty extra field has a length, too.
	if err := member(&least, []byte{}); err != nil {
		return err
	}
	switch extra := size - int64(least); {
	case extra >= 0 && extra <= math.MaxUint16:
		return member(w, make([]byte, extra))
	case !r.blank:
		return blankFor(r.of).fit(w, size, true)
	}
	return errTooSmall
}

// errTooSmall is the error for a record that is smaller than a blank one.
var errTooSmall = errors.New("no blank record fits in its place")

// A writeCounter counts what is written to it.
type writeCounter int64

func (c *writeCounter) Write(p []byte) (int, error) {
	*c += writeCounter(len(p))
	return len(p), nil
}
