package warc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"strings"
)

// maxHTTPHead is the maximum length of an HTTP head, in bytes. The proxy accepts no longer ones.
const maxHTTPHead = 1 << 20

var errNoHead = errors.New("the block has no whole HTTP head")

// HTTPHead splits an HTTP message into its head, with the empty line at its end, and the body as
// it is stored. Memory is used for the head alone, which may have up to 1 MiB.
func HTTPHead(block io.Reader) (head []byte, body io.Reader, err error) {
	in := bufio.NewReader(block)
	for {
		line, err := in.ReadSlice('\n')
		if len(head)+len(line) > maxHTTPHead {
			return nil, nil, fmt.Errorf("the HTTP head is longer than %d KiB", maxHTTPHead>>10)
		}
		begins := len(head) == 0 || head[len(head)-1] == '\n'
		head = append(head, line...)
		switch {
		case err == io.EOF:
			return head, in, errNoHead
		case err != nil && err != bufio.ErrBufferFull:
			return head, in, err
		case begins && len(bytes.TrimRight(line, "\r\n")) == 0:
			return head, in, nil
		}
	}
}

// Payload returns the head of an HTTP message, nil for other blocks, and the payload of the
// record: the body without chunked transfer coding, or the whole block.
func (rec *Record) Payload() (head []byte, payload io.Reader, err error) {
	if !rec.IsHTTP() {
		return nil, rec.Block, nil
	}
	head, body, err := HTTPHead(rec.Block)
	if err == nil && isChunked(head) {
		body = httputil.NewChunkedReader(body)
	}
	return head, body, err
}

// isChunked reports whether the body has the transfer coding chunked.
func isChunked(head []byte) bool {
	return strings.EqualFold(FieldOf(head, "Transfer-Encoding"), "chunked")
}

// FieldOf returns the value of the first field with this name in an HTTP head, or in a block of the type Fields; "": there
// is none.
func FieldOf(head []byte, name string) string {
	for line := range bytes.Lines(head) {
		field, value, ok := bytes.Cut(line, []byte(":"))
		if ok && strings.EqualFold(string(field), name) {
			return string(bytes.TrimSpace(value))
		}
	}
	return ""
}
