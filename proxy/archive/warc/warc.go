// Package warc reads WARC files (ISO 28500, WARC 1.0 and 1.1), plain or compressed with gzip,
// verifies them, and writes index lines in the format CDXJ.
//
// The files may come from anybody. The package reads them in one pass, and its memory depends
// neither on the length of a block nor on what a head claims. It does not join the segments of
// a record that was split over several files.
package warc

import (
	"errors"
	"strings"
)

// ErrTorn is the error for a file that ends inside a record, as after a crash of its writer.
var ErrTorn = errors.New("the file ends inside a record")

// The bounds of a record's head: its bytes and its fields. A head contains at most two URLs, of 64 KiB each.
const (
	maxHead   = 256 << 10
	maxFields = 512
)

// The values of WARC-Type that the proxy writes.
const (
	TypeWarcinfo = "warcinfo"
	TypeRequest  = "request"
	TypeResponse = "response"
	TypeRevisit  = "revisit"
	TypeResource = "resource"
	TypeMetadata = "metadata"
)

// A Field is one named field of a record.
type Field struct{ Name, Value string }

// A Header is the named fields of a record in their order.
type Header []Field

// Get returns the value of the first field with the name, in any case, or "".
func (h Header) Get(name string) string {
	for _, f := range h {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// All returns the values of all fields with the name, in any case.
func (h Header) All(name string) (values []string) {
	for _, f := range h {
		if strings.EqualFold(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	return values
}

// Type returns WARC-Type.
func (h Header) Type() string { return h.Get("WARC-Type") }

// ID returns WARC-Record-ID with its angle brackets.
func (h Header) ID() string { return h.Get("WARC-Record-ID") }

// TargetURI returns WARC-Target-URI. Some writers of WARC 1.0 put it into angle brackets, which
// are removed.
func (h Header) TargetURI() string {
	uri := h.Get("WARC-Target-URI")
	if inner, ok := strings.CutPrefix(uri, "<"); ok {
		return strings.TrimSuffix(inner, ">")
	}
	return uri
}

// IsHTTP reports whether the block is an HTTP message with its head.
func (h Header) IsHTTP() bool {
	return mediaType(h.Get("Content-Type")) == "application/http"
}

// mediaType returns the media type of a Content-Type in lower case, without parameters.
func mediaType(contentType string) string {
	name, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(name))
}
