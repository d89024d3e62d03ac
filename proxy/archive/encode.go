package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"robotsproxy/proxy/archive/warc"
)

// A record is what an encoder writes.
type record struct {
	// The record's head, with the blank line at its end.
	head []byte

	// Begins the block.
	block []byte

	// The rest of the block; nil: there is none.
	body *spool
}

// An encoder writes records. It is used by one goroutine.
type encoder struct {
	out io.Writer

	// nil: records are not compressed.
	zip *gzip.Writer
}

var zips = sync.Pool{New: func() any {
	// A valid level.
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return z
}}

func newEncoder(out io.Writer, compress bool) *encoder {
	e := &encoder{out: out}
	if compress {
		e.zip = zips.Get().(*gzip.Writer)
	}
	return e
}

func (e *encoder) free() {
	if e.zip != nil {
		zips.Put(e.zip)
	}
}

var errCutOff = &exchangeError{"somebody has cut off the file of the body"}

// write writes a record: one member of gzip, if records are compressed.
func (e *encoder) write(r record) error {
	out := e.out
	if e.zip != nil {
		e.zip.Reset(e.out)
		out = e.zip
	}
	_, err := out.Write(r.head)
	if err == nil {
		_, err = out.Write(r.block)
	}
	if err == nil && r.body != nil {
		var n int64
		if n, err = io.Copy(out, r.body.reader()); err == nil && n != r.body.size {
			err = errCutOff
		}
	}
	if err == nil {
		_, err = io.WriteString(out, warc.End)
	}
	if err == nil && e.zip != nil {
		err = e.zip.Close()
	}
	return err
}

// appendDigest appends a field with a SHA-256.
func appendDigest(b []byte, name string, d Digest) []byte {
	b = append(append(b, name...), ": sha256:"...)
	return append(hex.AppendEncode(b, d[:]), "\r\n"...)
}

// warcinfo returns the first record of a file (ISO 28500 6.2).
func warcinfo(file string, now time.Time, software string, o *Options) record {
	b := warc.AppendField(nil, "software", software)
	b = warc.AppendField(b, "format", "WARC File Format 1.1")
	b = warc.AppendField(b, "conformsTo", "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/")
	b = warc.AppendField(b, "description", leftOut(o))
	h := warc.AppendType(nil, "warcinfo")
	h = warc.AppendField(h, "WARC-Record-ID", warc.NewID())
	h = warc.AppendField(h, "WARC-Date", warc.FormatTime(now))
	h = warc.AppendField(h, "WARC-Filename", file)
	h = warc.AppendField(h, "Content-Type", warc.Fields)
	h = appendDigest(h, "WARC-Block-Digest", sha256.Sum256(b))
	return record{head: warc.AppendLength(h, int64(len(b))), block: b}
}

// leftOut says what the records of a file lack.
func leftOut(o *Options) string {
	text := "HTTP heads are written from parsed fields; trailers are left out; HTTP/2 is written as HTTP/1.1"
	if !o.KeepSecrets {
		text += "; cookies and credentials are left out"
	}
	if o.DropQuery {
		text += "; the queries of URLs are left out"
	}
	return text
}
