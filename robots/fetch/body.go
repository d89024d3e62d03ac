package fetch

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"robotsproxy/robots"
)

const (
	// maxDrain is how many bytes of an unread body are taken off the connection, so that the next
	// request can use it.
	maxDrain = 16 << 10

	// maxRaw limits the coded bytes of a 2xx: members or blocks that decode to nothing could
	// otherwise go on until the timeout.
	maxRaw = 2 * robots.MaxBytes
)

func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	_ = body.Close()
}

// decode reads a body up to robots.MaxBytes decoded bytes, and ignores the rest. A body that
// breaks off before is an error: the missing lines may be the ones that disallow.
func decode(res *http.Response) ([]byte, error) {
	r, err := decoder(res)
	if err != nil {
		return nil, err
	}
	// The header may be long, and the memory is for the text.
	res.Header = nil
	body, err := io.ReadAll(io.LimitReader(r, robots.MaxBytes))
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	if spare := cap(body) - len(body); spare > len(body)/8 {
		// The cache may keep the body for weeks, so the copy has no spare capacity.
		body = bytes.Clone(body)
	}
	return body, nil
}

// decoder undoes the content codings (RFC 9110 8.4.1) of the request's Accept-Encoding. A body
// that is coded with gzip more than once is rejected, as only an attack does that.
func decoder(res *http.Response) (io.Reader, error) {
	var gzipped bool
	for _, coding := range strings.Split(strings.Join(res.Header.Values("Content-Encoding"), ","), ",") {
		switch coding = strings.ToLower(strings.TrimSpace(coding)); {
		case coding == "" || coding == "identity":
		case (coding == "gzip" || coding == "x-gzip") && !gzipped:
			gzipped = true
		default:
			return nil, fmt.Errorf("unsupported content coding %.40q", coding)
		}
	}
	if !gzipped {
		return res.Body, nil
	}
	z, err := gzip.NewReader(io.LimitReader(res.Body, maxRaw))
	// Some servers label an empty body as gzip.
	if errors.Is(err, io.EOF) {
		return http.NoBody, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	return z, nil
}
