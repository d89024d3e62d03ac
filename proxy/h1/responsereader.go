package h1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

const (
	// MaxHead is the maximum length of the head of one response, in bytes.
	MaxHead = 256 << 10
	// MaxFields is the maximum number of its lines. Each takes about 100 bytes of memory, however short it is.
	MaxFields = 512
)

// Errors of a head that is too long.
var (
	ErrHeadSize   = fmt.Errorf("the response header exceeds %d bytes", MaxHead)
	ErrFieldCount = fmt.Errorf("the response header exceeds %d fields", MaxFields)
)

// readLine reads a line and returns it without its end, which may be LF alone (RFC 9112 2.2). The line must not be
// longer than left, which it decreases.
func readLine(from *bufio.Reader, left *int) (string, error) {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		if *left -= len(part); *left < 0 {
			return "", ErrHeadSize
		}
		switch line = append(line, part...); err {
		case nil:
			return strings.TrimSuffix(string(line[:len(line)-1]), "\r"), nil
		case bufio.ErrBufferFull:
		case io.EOF:
			return "", io.ErrUnexpectedEOF
		default:
			return "", err
		}
	}
}

// readFields reads at most so many fields, until the empty line. A field that cannot be passed on is left out, as
// browsers and curl do: one without a colon, with a name that is no token, or with a control character
// in its value. dropped is the number of those.
func readFields(from *bufio.Reader, left *int, most int) (fields http.Header, dropped int, err error) {
	fields = make(http.Header)
	// They are those of the field that may continue on the next line; name is "" if there is none.
	var name, value string
	for n := 0; ; n++ {
		line, err := readLine(from, left)
		switch {
		case err != nil:
			return nil, 0, err
		case n > most:
			return nil, 0, ErrFieldCount
		case line != "" && (line[0] == ' ' || line[0] == '\t'):
			// RFC 9112 5.2.
			value = strings.TrimLeft(value+" "+textproto.TrimString(line), " ")
			continue
		}
		if n > 0 {
			switch bare, err := fieldName(name, value); {
			case err != nil:
				return nil, 0, err
			case bare == "":
				dropped++
			default:
				fields[bare] = append(fields[bare], value)
			}
		}
		if line == "" {
			return fields, dropped, nil
		}
		var colon bool
		if name, value, colon = strings.Cut(line, ":"); !colon {
			name = ""
		}
		name, value = http.CanonicalHeaderKey(name), textproto.TrimString(value)
	}
}

// fieldName returns the name of a field, without white space before the colon (RFC 9112 5.1), or "" if
// the field cannot be passed on. The error is that of a field that concerns message framing.
func fieldName(name, value string) (string, error) {
	bare := http.CanonicalHeaderKey(strings.TrimRight(name, " \t"))
	valid := httpguts.ValidHeaderFieldName(bare) && httpguts.ValidHeaderFieldValue(value)
	switch bare {
	case "Content-Length", "Transfer-Encoding":
		if !valid || bare != name {
			return "", fmt.Errorf("the response has a malformed %s", bare)
		}
	}
	if !valid {
		return "", nil
	}
	return bare, nil
}

// ReadResponse reads the head of one response to r, which may be a 1xx. At least one byte of it must have arrived.
// The response's Body reads the rest from from, which must not be used otherwise until then. If the buffered bytes
// are not a complete, well-formed head, ReadResponse calls slow and then reads line by line. dropped is the number of
// fields that were left out because they cannot be passed on. It fails with ErrHeadSize, ErrFieldCount, the error of
// slow or of from, or an error that says what is malformed. Do not reuse the connection if the response's Close is set.
func ReadResponse(from *bufio.Reader, r *http.Request, slow func() error) (resp *http.Response, dropped int, err error) {
	// Neither Peek nor Discard can fail: the bytes are buffered.
	buffered, _ := from.Peek(from.Buffered())
	start, fields, size := ParseHead(buffered)
	if from.Discard(size); size == 0 {
		if err := slow(); err != nil {
			return nil, 0, err
		}
		left := MaxHead
		if start, err = readLine(from, &left); err == nil {
			fields, dropped, err = readFields(from, &left, MaxFields)
		}
		if err != nil {
			return nil, 0, err
		}
	}
	resp, err = parseResponse(start, fields, r, from)
	return resp, dropped, err
}

// parseResponse makes the response of a head (RFC 9112 4 and 6.3). Its body is read from the reader that
// the head was read from.
func parseResponse(start string, fields http.Header, r *http.Request, from *bufio.Reader) (*http.Response, error) {
	proto, status, ok := strings.Cut(start, " ")
	resp := &http.Response{Proto: proto, Status: strings.TrimLeft(status, " "), Header: fields, Body: http.NoBody, Request: r}
	major, minor, version := http.ParseHTTPVersion(proto)
	code, _, _ := strings.Cut(resp.Status, " ")
	number, err := strconv.ParseUint(code, 10, 16)
	if !ok || !version || err != nil || len(code) != 3 {
		return nil, fmt.Errorf("malformed status line %q", start[:min(len(start), 100)])
	}
	resp.ProtoMajor, resp.ProtoMinor, resp.StatusCode = major, minor, int(number)
	if !httpguts.ValidHeaderFieldValue(resp.Status) {
		// A reason that cannot be passed on is left out.
		resp.Status = code
	}
	if CountFields(fields) > MaxFields {
		return nil, ErrFieldCount
	}
	modern := resp.ProtoAtLeast(1, 1)
	listed := func(token string) bool { return httpguts.HeaderValuesContainsToken(fields["Connection"], token) }
	resp.Close = major < 1 || listed("close") || !modern && !listed("keep-alive")
	chunked, err := isChunkedResponse(fields["Transfer-Encoding"])
	delete(fields, "Transfer-Encoding")
	if !modern {
		// HTTP/1.0 has no transfer codings.
		chunked, err = false, nil
	}
	length := int64(-1)
	if err == nil {
		length, err = contentLength(fields)
	}
	if err != nil {
		return nil, err
	}
	resp.ContentLength = length
	if chunked {
		resp.TransferEncoding, resp.Trailer = []string{"chunked"}, announced(fields)
	}
	switch {
	case r.Method == http.MethodHead:
	case number/100 == 1 || number == http.StatusNoContent || number == http.StatusNotModified:
		resp.ContentLength = 0
	case chunked:
		delete(fields, "Content-Length")
		resp.ContentLength = -1
		resp.Body = &chunkedBody{httputil.NewChunkedReader(from), from, resp}
	case length > 0:
		resp.Body = &sizedBody{from, length}
	case length < 0:
		// The end of the connection is the end of the body.
		resp.Close = true
		resp.Body = io.NopCloser(from)
	}
	return resp, nil
}

// CountFields returns the number of field lines.
func CountFields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// isChunkedResponse reads Transfer-Encoding as browsers do: chunked may be repeated, and identity says
// nothing (RFC 9112 6.1, 6.3).
func isChunkedResponse(lists []string) (chunked bool, err error) {
	for _, list := range lists {
		for coding := range strings.SplitSeq(list, ",") {
			switch coding = strings.ToLower(textproto.TrimString(coding)); coding {
			case "chunked":
				chunked = true
			case "", "identity":
			default:
				return false, fmt.Errorf("unsupported transfer coding %q", coding)
			}
		}
	}
	return chunked, nil
}

// contentLength returns the length that the fields give, or -1. A length that is repeated counts once (RFC
// 9110 8.6).
func contentLength(fields http.Header) (int64, error) {
	values := fields["Content-Length"]
	if len(values) == 0 {
		return -1, nil
	}
	first, _, _ := strings.Cut(values[0], ",")
	first = textproto.TrimString(first)
	for _, list := range values {
		for v := range strings.SplitSeq(list, ",") {
			if textproto.TrimString(v) != first {
				return 0, fmt.Errorf("the response has more than one Content-Length: %q", values)
			}
		}
	}
	n, err := strconv.ParseUint(first, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("malformed Content-Length %q", first)
	}
	if len(values) > 1 || values[0] != first {
		fields["Content-Length"] = []string{first}
	}
	return int64(n), nil
}

// announced returns the fields that Trailer announces, without values, or nil. It removes Trailer.
func announced(fields http.Header) (trailer http.Header) {
	for _, list := range fields["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = textproto.TrimString(name); name != "" {
				if trailer == nil {
					trailer = make(http.Header)
				}
				trailer[http.CanonicalHeaderKey(name)] = nil
			}
		}
	}
	delete(fields, "Trailer")
	return trailer
}

// A chunkedBody is a body of unknown length (RFC 9112 7.1).
type chunkedBody struct {
	chunks io.Reader
	from   *bufio.Reader

	// response gets the trailer at the end.
	response *http.Response
}

// Read returns io.EOF after it has read the trailer into the response.
func (b *chunkedBody) Read(p []byte) (int, error) {
	n, err := b.chunks.Read(p)
	if err != io.EOF {
		return n, err
	}
	if err := b.readTrailer(); err != nil {
		return n, err
	}
	return n, io.EOF
}

// Close does nothing: the owner of the connection closes it.
func (*chunkedBody) Close() error { return nil }

const (
	// maxTrailer bounds a trailer, in bytes, as clients of net/http do.
	maxTrailer = 4 << 10
	// maxTrailerFields bounds its lines, so that its memory is part of the estimate for a request.
	maxTrailerFields = 64
)

var errTrailer = fmt.Errorf("the trailer of the response exceeds %d bytes or %d fields", maxTrailer, maxTrailerFields)

func (b *chunkedBody) readTrailer() error {
	left := maxTrailer
	fields, _, err := readFields(b.from, &left, maxTrailerFields)
	switch {
	case errors.Is(err, ErrHeadSize), errors.Is(err, ErrFieldCount):
		return errTrailer
	case err != nil || len(fields) == 0:
		return err
	}
	if b.response.Trailer == nil {
		b.response.Trailer = make(http.Header, len(fields))
	}
	maps.Copy(b.response.Trailer, fields)
	return nil
}

// A sizedBody is a body of known length (RFC 9112 6.3).
type sizedBody struct {
	from *bufio.Reader
	left int64
}

// Read reads from the body. io.ErrUnexpectedEOF means that the connection ended before the
// body did.
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

// Close does nothing: the owner of the connection closes it.
func (*sizedBody) Close() error { return nil }
