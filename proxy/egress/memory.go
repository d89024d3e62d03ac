package egress

import (
	"net/http"

	"robotsproxy/policy/memory"
)

// The heads of a response (1xx, the final one, the trailer) are in memory until the request ends, and what arrives of a body
// over HTTP/2 until it is read. The estimate for a request contains includedBytes of the heads, and as much of the body. The
// rest counts against the client's share before more is read. Without memory for it, the response fails with
// memory.ErrShort.
const (
	// includedBytes is the estimate for a head of 4 KiB with 64 fields.
	includedBytes = 24 << 10
	// reserveStep is the number of bytes that are counted at once.
	reserveStep = 32 << 10

	// headByte and headField are the estimates for a byte and for a field of a head, in bytes: in the header, in the buffers
	// from which it is read and sent on, and in the archive (measured: 1.2 to 3.3 for a byte, 60 to 150 for a field).
	headByte, headField = 4, 128
)

// headMemory returns the estimate for heads, in bytes.
func headMemory(size, fields int) int64 { return int64(size)*headByte + int64(fields)*headField }

// A reserve is what a part of a response takes of the memory budget. It belongs to one goroutine at a time.
type reserve struct {
	// work is the request in the memory budget; nil: nothing is counted.
	work *memory.Work

	// counted is what was counted so far, in bytes.
	counted int64
}

// set counts the steps that n bytes need beyond includedBytes, instead of what it has counted before. After an error, which
// is memory.ErrShort, the earlier count stays.
func (r *reserve) set(n int64) error {
	n = max(0, n-includedBytes+reserveStep-1) / reserveStep * reserveStep
	switch {
	case r.work == nil:
	case n > r.counted:
		if err := r.work.Hold(n - r.counted); err != nil {
			return err
		}
	case n < r.counted:
		r.work.Free(r.counted - n)
	}
	r.counted = n
	return nil
}

// fieldOverhead is what a field counts in addition to its bytes (RFC 9113 6.5.2).
const fieldOverhead = 32

// sizeOf returns the size of a header as RFC 9113 6.5.2 counts it, and the number of its field lines.
func sizeOf(header http.Header) (size, fields int) {
	for name, values := range header {
		fields += len(values)
		for _, v := range values {
			size += len(name) + len(v) + fieldOverhead
		}
	}
	return size, fields
}
