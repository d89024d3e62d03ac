package fetch

import (
	"net/http"
	"strings"
	"unsafe"
)

// MaxHeader is how many octets are kept of each of [Headers].
const MaxHeader = 256

// Headers are those of an answer that say what the text is and how long it is good,
// as the origin wrote them; of several lines of a name one, with commas. They
// decide nothing after the fetch: they are for the record.
type Headers struct {
	ContentType     string `json:"content_type,omitempty"`
	ContentEncoding string `json:"content_encoding,omitempty"`
	LastModified    string `json:"last_modified,omitempty"`
	ETag            string `json:"etag,omitempty"`
	CacheControl    string `json:"cache_control,omitempty"`
	Age             string `json:"age,omitempty"`
}

// headersOf picks them, each cut at MaxHeader; nil: there is none of them.
func headersOf(h http.Header) *Headers {
	cut := func(name string) string {
		value := strings.Join(h.Values(name), ", ")
		return strings.Clone(value[:min(len(value), MaxHeader)]) // or all of the answer's head would be held on to
	}
	picked := Headers{
		ContentType:     cut("Content-Type"),
		ContentEncoding: cut("Content-Encoding"),
		LastModified:    cut("Last-Modified"),
		ETag:            cut("ETag"),
		CacheControl:    cut("Cache-Control"),
		Age:             cut("Age"),
	}
	if picked == (Headers{}) {
		return nil
	}
	return &picked
}

// Size gives the octets of memory that they take.
func (h *Headers) Size() int {
	if h == nil {
		return 0
	}
	return int(unsafe.Sizeof(*h)) + len(h.ContentType) + len(h.ContentEncoding) + len(h.LastModified) + len(h.ETag) + len(h.CacheControl) + len(h.Age)
}
