package fetch

import (
	"net/http"
	"strings"
	"unsafe"
)

// MaxHeader is how many bytes are kept of each of [Headers].
const MaxHeader = 256

// Headers are the fields of a response that say what the text is and how long it is fresh, as
// the origin wrote them; several lines of a field are joined by commas. They are for the record,
// and decide nothing after the fetch.
type Headers struct {
	ContentType     string `json:"content_type,omitempty"`
	ContentEncoding string `json:"content_encoding,omitempty"`
	LastModified    string `json:"last_modified,omitempty"`
	ETag            string `json:"etag,omitempty"`
	CacheControl    string `json:"cache_control,omitempty"`
	Age             string `json:"age,omitempty"`
}

// headersOf returns these fields, each cut at MaxHeader; nil: there are none.
func headersOf(h http.Header) *Headers {
	cut := func(name string) string {
		value := strings.Join(h.Values(name), ", ")
		// A substring would keep the whole head in memory.
		return strings.Clone(value[:min(len(value), MaxHeader)])
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

// Size returns the bytes of memory that the Headers take.
func (h *Headers) Size() int {
	if h == nil {
		return 0
	}
	return int(unsafe.Sizeof(*h)) + len(h.ContentType) + len(h.ContentEncoding) + len(h.LastModified) + len(h.ETag) +
		len(h.CacheControl) + len(h.Age)
}
