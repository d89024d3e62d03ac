package egress

import (
	"bytes"
	"errors"
	"html/template"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jlaffaye/ftp"
)

// Ceilings of a directory's listing. One that is longer breaks off there.
const (
	maxFTPListing = 1 << 20 // octets
	maxFTPEntries = 10_000
)

var errFTPListing = errors.New("the FTP server's listing is too long")

// A listing is the data connection that a directory's entries come over. The
// library keeps them all, and says nothing of a line that it cannot read.
type listing struct {
	net.Conn
	octets, lines int
	ended         bool // where it should
}

// Read counts what comes.
func (l *listing) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if l.octets == 0 && bytes.HasPrefix(b[:n], []byte("total ")) {
		l.lines-- // of ls -l: no entry
	}
	l.octets += n
	l.lines += bytes.Count(b[:n], []byte{'\n'})
	l.ended = err == io.EOF
	if l.octets > maxFTPListing || l.lines > maxFTPEntries {
		return 0, errFTPListing
	}
	return n, err
}

// directory answers for a directory with its entries. LIST and MLSD get no
// argument: some servers would take a name for options or a pattern.
func (v *ftpVisit) directory() (*http.Response, error) {
	if name := v.path.String(); name != "" {
		if err := v.server.ChangeDir(name); err != nil {
			return nil, err
		}
	}
	header := http.Header{"Content-Type": {"text/html; charset=utf-8"}}
	if v.r.Method == http.MethodHead {
		return v.response(http.StatusOK, header, -1, http.NoBody), nil
	}
	v.list = &listing{}
	var entries []*ftp.Entry
	err := guarded(func() (err error) {
		entries, err = v.server.List("")
		return err
	})
	switch code := replyCode(err); {
	case code == ftpDone && v.list.ended, code == ftpNone && v.list.octets == 0:
		err = nil
	case err != nil && len(entries) == 0:
		return nil, err
	}
	shown := v.page(entries)
	if err == nil {
		shown.Unread = max(0, v.list.lines-len(entries))
	}
	var page bytes.Buffer
	if fault := listingPage.Execute(&page, shown); fault != nil {
		return nil, fault
	}
	if err == nil {
		return v.response(http.StatusOK, header, int64(page.Len()), io.NopCloser(&page)), nil
	}
	// What came is shown, and that it is not all.
	return v.response(http.StatusOK, header, -1, io.NopCloser(io.MultiReader(&page, broken{v.fault(err)}))), nil
}

// A broken reader has nothing but its error.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// A dirPage is a directory as its page shows it.
type dirPage struct {
	Title  string
	Parent string // its address; "" at the top
	Rows   []dirRow
	Unread int // lines that the library could not read
}

type dirRow struct {
	Name, Href string // "" as Href: it has no address here
	Size       uint64
	IsFile     bool
	Date       string
}

func (v *ftpVisit) page(entries []*ftp.Entry) dirPage {
	base := v.path.url()
	p := dirPage{Title: v.origin.String() + base}
	if n := len(v.path.names); n > 0 {
		p.Parent = ftpPath{names: v.path.names[:n-1]}.url()
	}
	for _, e := range entries {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.Contains(e.Name, "/") { // this directory, or above it
			continue
		}
		row := dirRow{Name: strings.ToValidUTF8(e.Name, "\ufffd"), Size: e.Size, IsFile: e.Type == ftp.EntryTypeFile}
		if isFTPName(e.Name) {
			row.Href = base + url.PathEscape(e.Name)
		}
		if e.Type == ftp.EntryTypeFolder {
			row.Name += "/"
			if row.Href != "" {
				row.Href += "/"
			}
		}
		if !e.Time.IsZero() {
			row.Date = e.Time.Format(time.DateOnly)
		}
		p.Rows = append(p.Rows, row)
	}
	return p
}

var listingPage = template.Must(template.New("listing").Parse(`<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{{.Title}}</title></head>
<body><h1>{{.Title}}</h1>
<table>
{{- if .Parent}}
<tr><td></td><td></td><td><a href="{{.Parent}}">../</a></td></tr>
{{- end}}
{{- range .Rows}}
<tr><td>{{.Date}}</td><td>{{if .IsFile}}{{.Size}}{{end}}</td><td>{{if .Href}}<a href="{{.Href}}">{{.Name}}</a>{{else}}{{.Name}}{{end}}</td></tr>
{{- end}}
</table>
{{- if .Unread}}
<p>{{.Unread}} more of the server's lines could not be read as entries.</p>
{{- end}}
</body></html>
`))
