package ftp

import (
	"bytes"
	"errors"
	"html/template"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	ftplib "github.com/jlaffaye/ftp"

	"robotsproxy/robots"
)

// Limits of a directory listing.
const (
	maxListing = 1 << 20 // bytes
	maxEntries = 10_000

	// listingByte and listingLine are the estimates for a byte and for a line of a listing, in bytes: the library's entry, and
	// the page with its escapes.
	listingByte, listingLine = 20, 512
)

var errListingLimit = errors.New("the FTP server's listing is too long")

// A listingConn is the data connection of a directory listing. It limits the listing,
// because the library keeps all entries, and counts its memory. It counts the lines, because the library does
// not report lines that it cannot read.
type listingConn struct {
	net.Conn
	bytes, lines int

	// ended says that the server has ended the listing.
	ended bool

	// count is Options.Count, and short its error.
	count func(n int64) error
	short error
}

// Read reads from the connection and counts lines.
func (l *listingConn) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if l.bytes == 0 && bytes.HasPrefix(b[:n], []byte("total ")) {
		// The first line of ls -l is not an entry.
		l.lines--
	}
	l.bytes += n
	l.lines += bytes.Count(b[:n], []byte{'\n'})
	l.ended = err == io.EOF
	if l.bytes > maxListing || l.lines > maxEntries {
		return 0, errListingLimit
	}
	if err := l.hold(l.bytes*listingByte + l.lines*listingLine); err != nil {
		return 0, err
	}
	return n, err
}

// hold counts n bytes of memory, and keeps the error.
func (l *listingConn) hold(n int) error {
	l.short = l.count(int64(n))
	return l.short
}

// An errReader returns its error on every Read.
type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// A listing is the content of a directory's page.
type listing struct {
	Title string

	// Parent is the path of the directory above; "" at the top.
	Parent string
	Rows   []listingRow

	// Unread is the number of lines that the library could not read.
	Unread int
}

type listingRow struct {
	// Href is "" if the entry cannot be requested.
	Name, Href string
	Size       uint64
	IsFile     bool
	Date       string
}

func newListing(o robots.Origin, dir remotePath, entries []*ftplib.Entry) listing {
	base := dir.url()
	l := listing{Title: o.String() + base}
	if n := len(dir.names); n > 0 {
		l.Parent = remotePath{names: dir.names[:n-1]}.url()
	}
	for _, e := range entries {
		// Such an entry is this directory, or lies above it.
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.Contains(e.Name, "/") {
			continue
		}
		row := listingRow{Name: strings.ToValidUTF8(e.Name, "\ufffd"), Size: e.Size, IsFile: e.Type == ftplib.EntryTypeFile}
		if isName(e.Name) {
			row.Href = base + url.PathEscape(e.Name)
		}
		if e.Type == ftplib.EntryTypeFolder {
			row.Name += "/"
			if row.Href != "" {
				row.Href += "/"
			}
		}
		if !e.Time.IsZero() {
			row.Date = e.Time.Format(time.DateOnly)
		}
		l.Rows = append(l.Rows, row)
	}
	return l
}

var listingPage = template.Must(template.New("listing").Parse(`<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{{.Title}}</title></head>
<body><h1>{{.Title}}</h1>
<table>
{{- if .Parent}}
<tr><td></td><td></td><td><a href="{{.Parent}}">../</a></td></tr>
{{- end}}
{{- range .Rows}}
<tr><td>{{.Date}}</td><td>{{if .IsFile}}{{.Size}}{{end}}</td>
{{- if .Href}}<td><a href="{{.Href}}">{{.Name}}</a></td>{{else}}<td>{{.Name}}</td>{{end}}</tr>
{{- end}}
</table>
{{- if .Unread}}
<p>Lines of the server's listing that could not be parsed: {{.Unread}}.</p>
{{- end}}
</body></html>
`))
