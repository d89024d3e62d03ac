package warc

import (
	"io"
	"strings"
	"time"
)

// IsCapture reports whether an index has the record, by the rules of pywb: it holds what its target
// URI returned, or is a file about the crawl.
func (h Header) IsCapture() bool {
	switch h.Type() {
	case TypeResponse, TypeRevisit:
		return true
	case TypeResource, TypeMetadata:
		return mediaType(h.Get("Content-Type")) != "application/warc-fields"
	}
	return false
}

// A Capture is the entry of a record in an index. As JSON, after the key and the time, it is a
// line of the format CDXJ.
type Capture struct {
	// Key is the SURT of URL.
	Key    string    `json:"-"`
	Time   time.Time `json:"-"`
	URL    string    `json:"url"`
	MIME   string    `json:"mime,omitempty"`
	Status string    `json:"status,omitempty"`
	Digest string    `json:"digest,omitempty"`

	// Length is the number of bytes that the record has in the file; 0: it cannot be read alone. Offset is where it begins.
	Length   int64  `json:"length,string"`
	Offset   int64  `json:"offset,string"`
	Filename string `json:"filename"`
}

// Capture returns the entry of a record whose IsCapture is true. It reads Block to its end.
func (rec *Record) Capture(filename string) (c Capture, err error) {
	c = Capture{
		URL: rec.TargetURI(), MIME: mediaType(rec.Get("Content-Type")), Digest: rec.Get("WARC-Payload-Digest"),
		Offset: rec.Offset, Filename: filename,
	}
	c.Key = SURT(c.URL)
	if c.Time, err = rec.Date(); err != nil {
		return c, err
	}
	if rec.IsHTTP() {
		// Without a head, the entry has no status.
		head, _, _ := HTTPHead(rec.Block)
		c.MIME = mediaType(FieldOf(head, "Content-Type"))
		c.Status = status(head)
	}
	if rec.Type() == TypeRevisit {
		c.MIME = "warc/revisit"
	}
	if _, err = io.Copy(io.Discard, rec.Block); err != nil {
		return c, err
	}
	c.Length = rec.Size
	return c, nil
}

// status returns the status code of an HTTP head, or "".
func status(head []byte) string {
	line, _, _ := strings.Cut(string(head[:min(len(head), 100)]), "\n")
	words := strings.Fields(line)
	if len(words) < 2 || !strings.HasPrefix(words[0], "HTTP/") {
		return ""
	}
	return words[1]
}
