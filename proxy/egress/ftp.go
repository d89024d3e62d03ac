package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/jlaffaye/ftp"

	"robotsproxy/robots"
)

// The replies that count here (RFC 959 4.2).
const (
	ftpDone      = 250 // some servers end a transfer with it, in place of 226
	ftpAway      = 421 // may answer any command, and ends the session
	ftpNone      = 450 // of LIST, with some servers: there is nothing to list
	ftpNotLogged = 530
	ftpNoFile    = 550
)

var (
	// ErrFTPMethod marks a method that there is no FTP for: all but GET and HEAD.
	ErrFTPMethod = errors.New("no method for FTP")

	errNotFTP   = errors.New("the server's reply is no FTP")
	errFTPLogin = errors.New("the FTP server refuses an anonymous login")
)

// An ftpVisit is one request to an FTP server, from the login to the answer.
// Each has a control connection of its own: nothing is kept between requests.
type ftpVisit struct {
	*line
	r      *http.Request
	origin robots.Origin
	path   ftpPath
	server *ftp.ServerConn // nil: it has not greeted us
	list   *listing        // of a directory, while it comes in
	body   *ftpBody        // nil: the answer is whole already
	stop   func() bool     // the context no longer ends the visit
}

// roundTripFTP makes an HTTP exchange of a visit to an FTP server, as
// anonymous; what credentials the request has are not looked at. What the
// server refuses is an answer of the origin's, with a status that means the
// same; its words stay here.
func (d *Door) roundTripFTP(r *http.Request, at netip.Addr) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	where, err := parseFTPPath(r.URL.RequestURI())
	if err != nil {
		return nil, fmt.Errorf("ftp: %w", err)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, fmt.Errorf("ftp: %w", ErrFTPMethod)
	}
	o, err := robots.ParseOrigin(r.URL.Scheme, r.URL.Host)
	if err != nil {
		return nil, fmt.Errorf("ftp: %w", err)
	}
	l, err := d.dialFTP(r.Context(), o, at)
	if err != nil {
		return nil, fmt.Errorf("ftp: %w", err)
	}
	v := &ftpVisit{line: l, r: r, origin: o, path: where}
	v.stop = context.AfterFunc(r.Context(), func() { l.Close() })
	resp, err := v.ask()
	if code := v.refusal(err); code != 0 {
		resp, err = v.refused(code)
	}
	l.asked() // the server was bothered, however far the request came
	if v.body == nil {
		v.leave()
	}
	if err != nil {
		return nil, fmt.Errorf("ftp %s: %w", o, v.fault(err))
	}
	return resp, nil
}

// ask says what the request wants. An error that is a *textproto.Error is the
// server's refusal.
func (v *ftpVisit) ask() (*http.Response, error) {
	if err := v.login(); err != nil {
		return nil, err
	}
	switch {
	case v.path.dir:
		return v.directory()
	case v.r.Method == http.MethodHead:
		return v.look()
	}
	return v.file()
}

// login also switches to binary transfers (TYPE I).
func (v *ftpVisit) login() error {
	greeted := false
	server, err := ftp.Dial(v.origin.Addr(), ftp.DialWithDialFunc(func(_, address string) (net.Conn, error) {
		if !greeted {
			greeted = true
			return v.line, nil
		}
		data, err := v.dialData(address)
		if err != nil || v.list == nil {
			return data, err
		}
		v.list.Conn = data
		return v.list, data.SetDeadline(v.until)
	}))
	if err != nil {
		return err
	}
	v.server = server
	err = server.Login("anonymous", "anonymous@")
	if errors.Is(v.fault(err), errNotFTP) && v.code >= 400 {
		return &textproto.Error{Code: v.code} // of USER: the library does not give it
	}
	return err
}

// guarded calls the library where it reads what can make it panic: a PASV
// reply with its brackets the wrong way round. A robots.txt is fetched where
// nobody else would catch that.
func guarded(call func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errNotFTP
		}
	}()
	return call()
}

// about gives a file's size, -1 where it is not known, and when it was changed.
// err says why neither is known.
func (v *ftpVisit) about(name string) (size int64, modified time.Time, err error) {
	size, err = v.server.FileSize(name)
	if err != nil || size < 0 {
		size = -1
	}
	modified, none := v.server.GetTime(name)
	if none == nil {
		err = nil
	}
	return size, modified, err
}

// look answers HEAD for a file: nothing is transferred.
func (v *ftpVisit) look() (*http.Response, error) {
	v.asked()
	name := v.path.String()
	size, modified, err := v.about(name)
	if err != nil {
		return v.elsewhere(name, err)
	}
	return v.response(http.StatusOK, fileHeader(name, size, modified), size, http.NoBody), nil
}

// file answers GET for a file.
func (v *ftpVisit) file() (*http.Response, error) {
	name := v.path.String()
	size, modified, _ := v.about(name) // RETR knows better whether it is there
	header := fileHeader(name, size, modified)
	first, partial := rangeFrom(v.r.Header)
	if partial = partial && size >= 0; !partial {
		first = 0
	}
	if partial && first >= size {
		header.Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return v.note(http.StatusRequestedRangeNotSatisfiable, header, "The file ends before the range that was asked for.\n"), nil
	}
	data, err := v.retrieve(name, first)
	if err != nil && first > 0 && !v.sent && replyCode(err)/100 == 5 {
		first, partial = 0, false // REST is not known here
		data, err = v.retrieve(name, 0)
	}
	if err != nil {
		return v.elsewhere(name, err)
	}
	if err := v.SetDeadline(time.Time{}); err != nil { // whoever reads the body watches it
		return nil, err
	}
	v.body = &ftpBody{visit: v, data: data, left: size - first}
	if size < 0 {
		v.body.left = -1
	}
	if !partial {
		return v.response(http.StatusOK, header, size, v.body), nil
	}
	header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, size-1, size))
	return v.response(http.StatusPartialContent, header, size-first, v.body), nil
}

func (v *ftpVisit) retrieve(name string, first int64) (data *ftp.Response, err error) {
	err = guarded(func() error {
		data, err = v.server.RetrFrom(name, uint64(first))
		return err
	})
	return data, err
}

// elsewhere answers for what is no file: where it is a directory, its address
// ends in a slash.
func (v *ftpVisit) elsewhere(name string, err error) (*http.Response, error) {
	if replyCode(err) != ftpNoFile || v.server.ChangeDir(name) != nil {
		return nil, err
	}
	header := http.Header{"Location": {v.origin.String() + v.path.url()}}
	return v.note(http.StatusMovedPermanently, header, "This is a directory: its address ends in a slash.\n"), nil
}

// replyCode is the code of a refusal; 0: err is none.
func replyCode(err error) int {
	if reply, ok := errors.AsType[*textproto.Error](err); ok {
		return reply.Code
	}
	return 0
}

// refusal is replyCode, for a server too that says 421 and hangs up before the
// next command.
func (v *ftpVisit) refusal(err error) int {
	if code := replyCode(err); code != 0 {
		return code
	}
	if err != nil && v.code == ftpAway && v.ctx.Err() == nil {
		return ftpAway
	}
	return 0
}

// refused answers for the server. That it lets nobody in, perhaps for others
// being there already, or makes no transfer at all, says nothing of its
// robots.txt, which a 4xx would call missing (RFC 9309 2.3.1.3) and so everything
// allowed: there it is an error.
func (v *ftpVisit) refused(code int) (*http.Response, error) {
	status := http.StatusBadGateway
	switch {
	case !v.sent && (code == ftpNotLogged || code == ftpNoFile) && robots.IsRobotsTxt(v.r.URL.RequestURI()):
		return nil, errFTPLogin
	case code == ftpNoFile:
		status = http.StatusNotFound
	case code == ftpNotLogged:
		status = http.StatusForbidden
	case code/100 == 4:
		status = http.StatusServiceUnavailable
	}
	return v.note(status, http.Header{}, fmt.Sprintf("The FTP server answered with code %d.\n", code)), nil
}

// fault keeps the server's words, which may be anything, out of an error.
func (v *ftpVisit) fault(err error) error {
	_, network := errors.AsType[net.Error](err)
	switch {
	case err == nil:
		return nil
	case v.ctx.Err() != nil:
		return context.Cause(v.ctx)
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case network:
		return err
	}
	for _, ours := range []error{ErrForbiddenAddr, ErrForbiddenPort, errFTPLogin, errFTPTalks, errFTPShort, errFTPListing, io.ErrUnexpectedEOF} {
		if errors.Is(err, ours) {
			return err
		}
	}
	return errNotFTP
}

// leave ends the visit in good order.
func (v *ftpVisit) leave() {
	v.stop()
	if v.server != nil {
		v.server.Quit() // best effort; it does not wait for the reply
	}
	v.Close()
}

// response makes an answer; size is that of its body, -1: not known.
func (v *ftpVisit) response(status int, header http.Header, size int64, body io.ReadCloser) *http.Response {
	if size >= 0 {
		header.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: body, ContentLength: size, Request: v.r,
	}
}

// note is an answer of a few words.
func (v *ftpVisit) note(status int, header http.Header, text string) *http.Response {
	header.Set("Content-Type", "text/plain; charset=utf-8")
	body := http.NoBody
	if v.r.Method == http.MethodHead {
		return v.response(status, header, int64(len(text)), body)
	}
	return v.response(status, header, int64(len(text)), io.NopCloser(strings.NewReader(text)))
}

func fileHeader(name string, size int64, modified time.Time) http.Header {
	// What charset the file is in, nobody knows.
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
