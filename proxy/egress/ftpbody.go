package egress

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jlaffaye/ftp"
)

// errFTPShort marks a transfer that has not come to a good end.
var errFTPShort = errors.New("the FTP transfer is not what was announced")

// An ftpBody is a file on its way. It ends in good order only if it had the
// octets that were announced and the server has said that all went well; as
// the end of a connection says nothing of that, the last octet of a known
// number is held back until then. One goroutine reads and closes it.
type ftpBody struct {
	visit *ftpVisit
	data  *ftp.Response
	left  int64 // octets to come; -1: not known
	err   error // once it has ended
}

// Read gives what has come.
func (b *ftpBody) Read(p []byte) (n int, err error) {
	switch {
	case b.err != nil || len(p) == 0:
		return 0, b.err
	case b.left == 0 || b.left == 1:
		n, err = b.last(p)
	case b.left > 1:
		n, err = b.data.Read(p[:min(int64(len(p)), b.left-1)])
		b.left -= int64(n)
		if err == io.EOF {
			err = fmt.Errorf("%w: it ends %d octets early", errFTPShort, b.left)
		}
	default:
		n, err = b.data.Read(p)
		if err == io.EOF {
			err = b.confirm()
		}
	}
	switch {
	case err == io.EOF:
		b.err = io.EOF
		b.visit.leave()
	case err != nil:
		b.err = fmt.Errorf("ftp %s: %w", b.visit.origin, b.visit.fault(err))
		b.visit.Close()
	}
	return n, b.err
}

// last reads the octet that is left, if one is, and the end.
func (b *ftpBody) last(p []byte) (int, error) {
	n := int(b.left)
	var tail [2]byte
	got, err := io.ReadFull(b.data, tail[:n+1])
	switch {
	case got > n:
		return 0, fmt.Errorf("%w: it goes on after its end", errFTPShort)
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		return 0, err
	case got < n:
		return 0, fmt.Errorf("%w: it ends 1 octet early", errFTPShort)
	}
	if err := b.confirm(); err != io.EOF {
		return 0, err
	}
	return copy(p, tail[:n]), io.EOF
}

// confirm waits for the reply that ends a transfer: io.EOF is the good one.
func (b *ftpBody) confirm() error {
	if err := b.visit.SetDeadline(time.Now().Add(b.visit.door.headerTimeout)); err != nil {
		return err
	}
	err := b.data.Close()
	switch code := replyCode(err); {
	case err == nil || code == ftpDone:
		return io.EOF
	case code != 0:
		return fmt.Errorf("%w: the server ends it with code %d", errFTPShort, code)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the server hangs up", errFTPShort)
	}
	return err
}

// Close breaks off what has not ended.
func (b *ftpBody) Close() error {
	b.visit.stop()
	if b.err == nil {
		b.err = http.ErrBodyReadAfterClose
	}
	b.visit.Close() // a second time does nothing
	return nil
}

// rangeFrom reads the one form of Range that FTP knows too, "bytes=N-"
// (RFC 9110 14.1.2). All others are ignored, which RFC 9110 14.2 permits; so is
// one that depends on what the client has (If-Range): a date alone cannot tell.
func rangeFrom(h http.Header) (first int64, ok bool) {
	if len(h["Range"]) != 1 || len(h["If-Range"]) > 0 {
		return 0, false
	}
	unit, spec, _ := strings.Cut(h["Range"][0], "=")
	digits, open := strings.CutSuffix(strings.TrimSpace(spec), "-")
	n, err := strconv.ParseUint(digits, 10, 63)
	if !strings.EqualFold(unit, "bytes") || !open || err != nil {
		return 0, false
	}
	return int64(n), true
}
