package egress

import (
	"bufio"
	"cmp"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/proxy/h1"
)

// apart is what stands elsewhere in a request, or nowhere where there is no body.
var apart = map[string]bool{"Host": true, "User-Agent": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true}

// write writes a simple request octet by octet as http.Request.Write does, and leaves
// to that what is rare.
func write(to *bufio.Writer, r *http.Request, trace *httptrace.ClientTrace) error {
	host, target := cmp.Or(r.Host, r.URL.Host), r.URL.RequestURI()
	agent, named := r.Header["User-Agent"] // else it is Go's
	if !named || r.Close || !httpguts.ValidHostHeader(host) || strings.Contains(host, "%") || strings.ContainsFunc(target, unicode.IsControl) ||
		trace != nil && (trace.WroteHeaderField != nil || trace.WroteRequest != nil) {
		return r.Write(to)
	}
	add := func(parts ...string) {
		for _, s := range parts {
			to.WriteString(s) // an error shows in the last of all
		}
	}
	add(cmp.Or(r.Method, http.MethodGet), " ", target, " HTTP/1.1\r\nHost: ", host, "\r\n")
	if len(agent) > 0 && agent[0] != "" {
		add("User-Agent: ", textproto.TrimString(agent[0]), "\r\n")
	}
	r.Header.WriteSubset(to, apart)
	_, err := to.WriteString("\r\n")
	if err == nil && trace != nil && trace.WroteHeaders != nil {
		trace.WroteHeaders()
	}
	return err
}

// sized reads from what has come the head of r's answer, as http.ReadResponse does,
// where it is whole, plain and the last of its heads, and tells the length of the body,
// behind which the connection stays; nil: it is not such a head.
func sized(from *bufio.Reader, r *http.Request) *http.Response {
	come, _ := from.Peek(from.Buffered()) // cannot fail
	start, fields, octets := h1.ParseHead(come)
	status, ok := strings.CutPrefix(start, "HTTP/1.1 ")
	lengths := fields["Content-Length"]
	if !ok || len(lengths) != 1 || r.Method == http.MethodHead || httpguts.HeaderValuesContainsToken(fields["Connection"], "close") {
		return nil
	}
	for _, name := range [...]string{"Transfer-Encoding", "Trailer", "Pragma"} { // net/http reads more out of them
		if fields[name] != nil {
			return nil
		}
	}
	word, _, _ := strings.Cut(status, " ")
	code, err := strconv.ParseUint(word, 10, 0)
	if len(word) != 3 || err != nil || code < 200 || code == http.StatusNoContent || code == http.StatusNotModified {
		return nil
	}
	length, err := strconv.ParseUint(lengths[0], 10, 63)
	if err != nil {
		return nil
	}
	from.Discard(octets) // cannot fail
	resp := &http.Response{
		Status: status, StatusCode: int(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: fields, ContentLength: int64(length), Body: http.NoBody, Request: r,
	}
	if length > 0 {
		resp.Body = &sizedBody{from, int64(length)}
	}
	return resp
}

// A sizedBody is one whose length was told (RFC 9112 6.3), behind a head.
type sizedBody struct {
	from *bufio.Reader
	left int64
}

// Read reads of it; io.ErrUnexpectedEOF: the connection has ended before it.
func (b *sizedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	switch {
	case err == nil && b.left == 0:
		err = io.EOF
	case err == io.EOF && b.left > 0:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close does nothing: whoever has the connection ends it.
func (*sizedBody) Close() error { return nil }
