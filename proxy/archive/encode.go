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

// A record is one record of a file.
type record struct {
	// head is the head of the record, with the blank line at its end.
	head []byte

	// block is how the block begins. body is the rest of the block; nil: there is none.
	block []byte
	body  *spool

	// offset is the distance in bytes from the first record that encode has written together with this one.
	offset int64
}

var zips = sync.Pool{New: func() any {
	// The level is valid, so there is no error.
	zip, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return zip
}}

// encode writes records one behind the other, and sets their offsets. With compress, each is one member of gzip.
func encode(out io.Writer, compress bool, records []record) (err error) {
	counted := &countingWriter{Writer: out}
	zip := zips.Get().(*gzip.Writer)
	defer zips.Put(zip)
	for i := range records {
		r := &records[i]
		r.offset = counted.n
		if compress {
			zip.Reset(counted)
			if err = r.write(zip); err == nil {
				err = zip.Close()
			}
		} else {
			err = r.write(counted)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errCutOff = &exchangeError{"somebody has cut off the file of the body"}

// write writes the record without compression.
func (r *record) write(out io.Writer) error {
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
	return err
}

type countingWriter struct {
	io.Writer
	n int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.n += int64(n)
	return n, err
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
	h := warc.AppendType(nil, warc.TypeWarcinfo)
	h = warc.AppendField(h, "WARC-Record-ID", warc.NewID())
	h = warc.AppendField(h, "WARC-Date", warc.FormatTime(now))
	h = warc.AppendField(h, "WARC-Filename", file)
	h = warc.AppendField(h, "Content-Type", warc.Fields)
	h = appendDigest(h, "WARC-Block-Digest", sha256.Sum256(b))
	return record{head: warc.AppendLength(h, int64(len(b))), block: b}
}

// leftOut says what the records of a file do not contain.
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
