// Package ftp answers HTTP requests for ftp URLs. It logs in to the FTP server as
// anonymous and makes an HTTP response from the result: a file, a page with the entries
// of a directory, or the status that matches the server's reply.
//
// It is not a general FTP client: it only reads, in passive mode, and keeps no connection
// between requests. It makes no connections itself: [Options.Dial] does that and decides
// which destinations are allowed.
//
// It fails with [ErrMethod] or [ErrPath] if a request cannot be made by FTP, and with the
// errors of Options.Dial. If a transfer does not end as announced, reading the body
// fails; the body is never shortened silently. No error contains text from the server.
//
// Any number of goroutines may call all functions.
package ftp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/textproto"
	"path"
	"strconv"
	"strings"
	"time"

	ftplib "github.com/jlaffaye/ftp"

	"robotsproxy/robots"
)

// Reply codes with a special treatment (RFC 959 4.2).
const (
	codeDone        = 250 // some servers end a transfer with this code instead of 226
	codeUnavailable = 421 // this reply to any command ends the session
	codeNoList      = 450 // some servers reply this to LIST if there is nothing to list
	codeNotLoggedIn = 530
	codeNoFile      = 550
)

var (
	// ErrMethod marks a method other than GET and HEAD, which FTP has no command for.
	ErrMethod = errors.New("method not supported for FTP")

	errLogin    = errors.New("the FTP server refuses anonymous login")
	errTransfer = errors.New("incomplete FTP transfer")
)

// Check returns the error of a request that FTP cannot make: ErrMethod or ErrPath.
func Check(r *http.Request) error {
	_, err := pathOf(r)
	return err
}

// pathOf returns the path that r requests.
func pathOf(r *http.Request) (remotePath, error) {
	where, err := parsePath(robots.PathQueryOf(r.URL))
	if err == nil && r.Method != http.MethodGet && r.Method != http.MethodHead {
		err = ErrMethod
	}
	if err != nil {
		return where, fmt.Errorf("ftp: %w", err)
	}
	return where, nil
}

// RoundTrip sends one request. It ignores credentials in the request. If the server
// refuses something, the response has the status with the same meaning, without the
// server's text.
func RoundTrip(r *http.Request, o Options) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	where, err := pathOf(r)
	if err != nil {
		return nil, err
	}
	origin, err := robots.ParseOrigin(r.URL.Scheme, r.URL.Host)
	if err != nil {
		return nil, fmt.Errorf("ftp: %w", err)
	}
	conn, err := dialControl(r.Context(), origin, o)
	if err != nil {
		return nil, fmt.Errorf("ftp: %w", err)
	}
	s := &session{controlConn: conn, r: r, origin: origin, path: where}
	s.stop = context.AfterFunc(r.Context(), func() { conn.Close() })
	resp, err := s.respond()
	if code := s.refusalCode(err); code != 0 {
		resp, err = s.refusal(code)
	}
	// The server was contacted, even if no transfer was requested.
	s.sent()
	if s.body == nil {
		s.quit()
	}
	if err != nil {
		return nil, fmt.Errorf("ftp %s: %w", origin, s.withoutReply(err))
	}
	return resp, nil
}

// A session is one request to an FTP server, with a control connection of its own.
type session struct {
	*controlConn
	r      *http.Request
	origin robots.Origin
	path   remotePath

	// server is nil until the server has sent its greeting.
	server *ftplib.ServerConn

	// list is the data connection of a directory listing; nil: none is requested.
	list *listingConn

	// body is nil if the response has no body to transfer.
	body *fileBody

	// stop keeps the end of the context from closing the connections.
	stop func() bool
}

// respond logs in and makes the response. Its error is a *textproto.Error if the server
// refused a command.
func (s *session) respond() (*http.Response, error) {
	if err := s.login(); err != nil {
		return nil, err
	}
	switch {
	case s.path.dir:
		return s.directory()
	case s.r.Method == http.MethodHead:
		return s.head()
	}
	return s.file()
}

// login also switches to binary transfers (TYPE I).
func (s *session) login() error {
	greeted := false
	server, err := ftplib.Dial(s.origin.Addr(), ftplib.DialWithDialFunc(func(_, address string) (net.Conn, error) {
		if !greeted {
			greeted = true
			return s.controlConn, nil
		}
		data, err := s.dialData(address)
		if err != nil || s.list == nil {
			return data, err
		}
		s.list.Conn = data
		return s.list, data.SetDeadline(s.deadline)
	}))
	if err != nil {
		return err
	}
	s.server = server
	err = server.Login("anonymous", "anonymous@")
	if errors.Is(s.withoutReply(err), errNotFTP) && s.code >= 400 {
		// The library does not return the reply to USER.
		return &textproto.Error{Code: s.code}
	}
	return err
}

// recovered converts a panic in the library to an error. A PASV reply with its brackets
// in the wrong order causes one. The callers of a robots.txt fetch do not recover from
// panics.
func recovered(call func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errNotFTP
		}
	}()
	return call()
}

// stat returns the size of a file (-1 if it is unknown) and the time of its last change.
// It returns an error if both are unknown.
func (s *session) stat(name string) (size int64, modified time.Time, err error) {
	size, err = s.server.FileSize(name)
	if err != nil || size < 0 {
		size = -1
	}
	modified, none := s.server.GetTime(name)
	if none == nil {
		err = nil
	}
	return size, modified, err
}

// head answers HEAD for a file, without a transfer.
func (s *session) head() (*http.Response, error) {
	s.sent()
	name := s.path.String()
	size, modified, err := s.stat(name)
	if err != nil {
		return s.redirect(name, err)
	}
	return s.response(http.StatusOK, fileHeader(name, size, modified), size, http.NoBody), nil
}

// file answers GET for a file.
func (s *session) file() (*http.Response, error) {
	name := s.path.String()
	// RETR tells whether the file exists.
	size, modified, _ := s.stat(name)
	header := fileHeader(name, size, modified)
	first, partial := rangeStart(s.r.Header)
	if partial = partial && size >= 0; !partial {
		first = 0
	}
	if partial && first >= size {
		header.Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return s.text(http.StatusRequestedRangeNotSatisfiable, header, "The file ends before the requested range.\n"), nil
	}
	data, err := s.retrieve(name, first)
	if err != nil && first > 0 && !s.requested && replyCode(err)/100 == 5 {
		// The server does not support REST.
		first, partial = 0, false
		data, err = s.retrieve(name, 0)
	}
	if err != nil {
		return s.redirect(name, err)
	}
	// The reader of the body limits its time.
	if err := s.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	s.body = &fileBody{session: s, data: data, left: size - first}
	if size < 0 {
		s.body.left = -1
	}
	if !partial {
		return s.response(http.StatusOK, header, size, s.body), nil
	}
	header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, size-1, size))
	return s.response(http.StatusPartialContent, header, size-first, s.body), nil
}

// directory makes a page with the entries of a directory. LIST and MLSD get no argument,
// because some servers take a name for options or a pattern.
func (s *session) directory() (*http.Response, error) {
	if name := s.path.String(); name != "" {
		if err := s.server.ChangeDir(name); err != nil {
			return nil, err
		}
	}
	header := http.Header{"Content-Type": {"text/html; charset=utf-8"}}
	if s.r.Method == http.MethodHead {
		return s.response(http.StatusOK, header, -1, http.NoBody), nil
	}
	s.list = &listingConn{count: s.o.Count}
	var entries []*ftplib.Entry
	err := recovered(func() (err error) {
		entries, err = s.server.List("")
		return err
	})
	switch code := replyCode(err); {
	case s.list.short != nil:
		return nil, s.list.short
	case code == codeDone && s.list.ended, code == codeNoList && s.list.bytes == 0:
		err = nil
	case err != nil && len(entries) == 0:
		return nil, err
	}
	content := newListing(s.origin, s.path, entries)
	if err == nil {
		content.Unread = max(0, s.list.lines-len(entries))
	}
	var page bytes.Buffer
	if err := listingPage.Execute(&page, content); err != nil {
		return nil, err
	}
	// Only the page is left in memory.
	if err := s.list.hold(page.Cap()); err != nil {
		return nil, err
	}
	if err == nil {
		return s.response(http.StatusOK, header, int64(page.Len()), io.NopCloser(&page)), nil
	}
	// The entries that arrived are shown, and the body then fails.
	return s.response(http.StatusOK, header, -1, io.NopCloser(io.MultiReader(&page, errReader{s.withoutReply(err)}))), nil
}

// retrieve starts to transfer a file from byte first on.
func (s *session) retrieve(name string, first int64) (data *ftplib.Response, err error) {
	err = recovered(func() error {
		data, err = s.server.RetrFrom(name, uint64(first))
		return err
	})
	return data, err
}

// redirect handles a file that RETR or SIZE refused with err. If it is a directory, the
// response redirects to its URL, which ends in a slash.
func (s *session) redirect(name string, err error) (*http.Response, error) {
	if replyCode(err) != codeNoFile || s.server.ChangeDir(name) != nil {
		return nil, err
	}
	header := http.Header{"Location": {s.origin.String() + s.path.url()}}
	return s.text(http.StatusMovedPermanently, header, "This is a directory: its URL must end in a slash.\n"), nil
}

// replyCode returns the code of the reply in err, or 0.
func replyCode(err error) int {
	if reply, ok := errors.AsType[*textproto.Error](err); ok {
		return reply.Code
	}
	return 0
}

// refusalCode is replyCode, but also finds a 421 after which the server closed the
// connection before the next command.
func (s *session) refusalCode(err error) int {
	if code := replyCode(err); code != 0 {
		return code
	}
	if err != nil && s.code == codeUnavailable && s.ctx.Err() == nil {
		return codeUnavailable
	}
	return 0
}

// refusal makes a response from a reply that refuses a command. For robots.txt, a refused
// login or data connection is an error: a 4xx would mean that there is no robots.txt (RFC
// 9309 2.3.1.3), so everything would be allowed.
func (s *session) refusal(code int) (*http.Response, error) {
	status := http.StatusBadGateway
	switch {
	case !s.requested && (code == codeNotLoggedIn || code == codeNoFile) && robots.IsRobotsTxt(robots.PathQueryOf(s.r.URL)):
		return nil, errLogin
	case code == codeNoFile:
		status = http.StatusNotFound
	case code == codeNotLoggedIn:
		status = http.StatusForbidden
	case code/100 == 4:
		status = http.StatusServiceUnavailable
	}
	return s.text(status, http.Header{}, fmt.Sprintf("The FTP server answered with code %d.\n", code)), nil
}

// withoutReply replaces an error that may contain text from the server.
func (s *session) withoutReply(err error) error {
	dial, isDial := errors.AsType[dialError](err)
	_, network := errors.AsType[net.Error](err)
	switch {
	case err == nil:
		return nil
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case s.list != nil && s.list.short != nil:
		return s.list.short
	case isDial:
		return dial.error
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case network:
		return err
	}
	for _, own := range []error{errLogin, errReplyLimit, errTransfer, errListingLimit, io.ErrUnexpectedEOF} {
		if errors.Is(err, own) {
			return err
		}
	}
	return errNotFTP
}

// quit logs out and closes the connections.
func (s *session) quit() {
	s.stop()
	if s.server != nil {
		// Quit does not wait for the reply.
		s.server.Quit()
	}
	s.Close()
}

// response makes a response. size is the length of its body, or -1 if it is unknown.
func (s *session) response(status int, header http.Header, size int64, body io.ReadCloser) *http.Response {
	if size >= 0 {
		header.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: body, ContentLength: size, Request: s.r,
	}
}

// text makes a response with a short text.
func (s *session) text(status int, header http.Header, text string) *http.Response {
	header.Set("Content-Type", "text/plain; charset=utf-8")
	body := io.NopCloser(strings.NewReader(text))
	if s.r.Method == http.MethodHead {
		body = http.NoBody
	}
	return s.response(status, header, int64(len(text)), body)
}

func fileHeader(name string, size int64, modified time.Time) http.Header {
	// The charset of the file is unknown.
	media, _, _ := strings.Cut(mime.TypeByExtension(path.Ext(name)), ";")
	if media == "" {
		media = "application/octet-stream"
	}
	h := http.Header{"Content-Type": {media}}
	if size >= 0 {
		h.Set("Accept-Ranges", "bytes")
	}
	if !modified.IsZero() && !modified.After(time.Now()) {
		h.Set("Last-Modified", modified.UTC().Format(http.TimeFormat))
	}
	return h
}

// A fileBody is the body of a file's response. It ends with io.EOF only if all announced
// bytes arrived and the server confirmed the transfer. The end of a data connection
// confirms nothing. Therefore the last byte of a known size is withheld until the
// confirmation. Only one goroutine may use it.
type fileBody struct {
	session *session
	data    *ftplib.Response

	// left is the number of bytes that are still missing; -1: unknown.
	left int64

	// err is what every Read returns after the end.
	err error
}

// Read reads from the data connection.
func (b *fileBody) Read(p []byte) (n int, err error) {
	switch {
	case b.err != nil || len(p) == 0:
		return 0, b.err
	case b.left == 0 || b.left == 1:
		n, err = b.last(p)
	case b.left > 1:
		n, err = b.data.Read(p[:min(int64(len(p)), b.left-1)])
		b.left -= int64(n)
		if err == io.EOF {
			err = fmt.Errorf("%w: the file ends %d bytes early", errTransfer, b.left)
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
		b.session.quit()
	case err != nil:
		b.err = fmt.Errorf("ftp %s: %w", b.session.origin, b.session.withoutReply(err))
		b.session.Close()
	}
	return n, b.err
}

// last reads the last byte, if one is missing, and the end.
func (b *fileBody) last(p []byte) (int, error) {
	n := int(b.left)
	var tail [2]byte
	got, err := io.ReadFull(b.data, tail[:n+1])
	switch {
	case got > n:
		return 0, fmt.Errorf("%w: the file is longer than announced", errTransfer)
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		return 0, err
	case got < n:
		return 0, fmt.Errorf("%w: the file ends 1 byte early", errTransfer)
	}
	if err := b.confirm(); err != io.EOF {
		return 0, err
	}
	return copy(p, tail[:n]), io.EOF
}

// confirm waits for the reply that ends a transfer. It returns io.EOF if the transfer succeeded.
func (b *fileBody) confirm() error {
	if err := b.session.SetDeadline(time.Now().Add(b.session.o.Timeout)); err != nil {
		return err
	}
	err := b.data.Close()
	switch code := replyCode(err); {
	case err == nil || code == codeDone:
		return io.EOF
	case code != 0:
		return fmt.Errorf("%w: the server ended it with code %d", errTransfer, code)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the server closed the connection", errTransfer)
	}
	return err
}

// Close aborts a transfer that has not ended.
func (b *fileBody) Close() error {
	b.session.stop()
	if b.err == nil {
		b.err = http.ErrBodyReadAfterClose
	}
	// To close a session again does nothing.
	b.session.Close()
	return nil
}

// rangeStart parses "bytes=N-" (RFC 9110 14.1.2), the only form of Range that FTP can
// serve. It ignores all other forms, as RFC 9110 14.2 permits. It also ignores a Range
// with If-Range, because a date alone does not identify the client's part.
func rangeStart(h http.Header) (first int64, ok bool) {
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
