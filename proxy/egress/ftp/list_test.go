package ftp

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"robotsproxy/proxy/egress/ftptest"
)

// rows returns the table rows of a listing page, without the first two columns.
func rows(page string) []string {
	var names []string
	for line := range strings.Lines(page) {
		if i := strings.LastIndex(line, "<td>"); strings.HasPrefix(line, "<tr>") && i >= 0 {
			names = append(names, strings.TrimSuffix(strings.TrimSpace(line[i+len("<td>"):]), "</td></tr>"))
		}
	}
	return names
}

// Each name links to its own entry and to nothing else, whatever it looks like.
func TestListing(t *testing.T) {
	files := map[string]string{
		"d/file.txt": "0123", "d/sub/x": "", "d/a b": "", "d/<script>": "", `d/"'&`: "", "d/javascript:alert(1)": "", "d/\xff\xfe": "",
		"d/x;type=d": "", "d/?q": "", "d/#f": "", "d/%41": "", "d/..x": "", "d/\x1b[2J": "", "d/\u00fc": "",
	}
	for _, features := range [][]string{nil, {}} { // MLSD, LIST
		s := start(t, &ftptest.Server{Files: files, Features: features})
		_, page, err := visit(t, http.MethodGet, "ftp://"+s.Addr()+"/d/", nil)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(rows(page), "\n")
		want := strings.Join([]string{
			`<a href="/">../</a>`,
			"\x1b[2J",
			`<a href="/d/%22%27&amp;">&#34;&#39;&amp;</a>`,
			`<a href="/d/%23f">#f</a>`,
			`<a href="/d/%2541">%41</a>`,
			`<a href="/d/..x">..x</a>`,
			`<a href="/d/%3Cscript%3E">&lt;script&gt;</a>`,
			`<a href="/d/%3Fq">?q</a>`,
			`<a href="/d/a%20b">a b</a>`,
			`<a href="/d/file.txt">file.txt</a>`,
			`<a href="/d/javascript:alert%281%29">javascript:alert(1)</a>`,
			`<a href="/d/sub/">sub/</a>`,
			`<a href="/d/x%3Btype=d">x;type=d</a>`,
			"<a href=\"/d/%C3%BC\">\u00fc</a>",
			"\ufffd",
		}, "\n")
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if !strings.Contains(page, "<td>2024-03-01</td><td>4</td>") || strings.Contains(page, "could not be parsed") {
			t.Errorf("%s", page)
		}
	}
}

// TestMemoryOfAListing checks that a listing counts while it arrives, that its page counts in the end, and that the request fails
// if there is no memory.
func TestMemoryOfAListing(t *testing.T) {
	const line = "-rw-r--r--   1 ftp      ftp             3 Mar 01  2024 name\r\n"
	short := errors.New("no memory")
	for _, limit := range []int64{1 << 20, 100 << 10} {
		s := start(t, &ftptest.Server{Features: []string{}, Transfer: func(data net.Conn, _ string) string {
			io.WriteString(data, strings.Repeat(line, 200))
			return "226 done"
		}})
		var most, last int64
		o := options()
		o.Count = func(n int64) error {
			if n > limit {
				return short
			}
			most, last = max(most, n), n
			return nil
		}
		_, page, err := visitBy(t, o, http.MethodGet, "ftp://"+s.Addr()+"/pub/", nil)
		switch n := int64(len(page)); {
		case limit < 200*listingLine && !errors.Is(err, short):
			t.Errorf("with %d bytes: %v", limit, err)
		case limit > 200*listingLine && (err != nil || n > last || last > most || most < 200*listingLine):
			t.Errorf("%v; a page of %d bytes counts %d, and the listing %d", err, n, last, most)
		}
	}
}

func TestListingThatIsHardToRead(t *testing.T) {
	lines := func(text string, last string) func(net.Conn, string) string {
		return func(data net.Conn, _ string) string {
			io.WriteString(data, text)
			return last
		}
	}
	const line = "-rw-r--r--   1 ftp      ftp             3 Mar 01  2024 name\r\n"
	for _, c := range []struct {
		name     string
		transfer func(net.Conn, string) string
		rows     int // -1: there is no page
		note     string
		err      error
	}{
		{"empty", lines("", "226 done"), 0, "", nil},
		{"empty, with a sum", lines("total 0\r\n", "226 done"), 0, "", nil},
		{"another format", lines("+i8388621.48594,m825718503,r,s280,\tdjb.html\r\n", "226 done"), 0, "could not be parsed: 1", nil},
		{"one odd line", lines(line+"srwxr-xr-x   1 ftp  ftp  0 Mar 01  2024 socket\r\n", "226 done"), 1, "could not be parsed: 1", nil},
		{"250 at the end", lines(line, "250 done"), 1, "", nil},
		{"broken off", lines(line, "426 broken off"), 1, "", errNotFTP},
		{"broken off at once", lines("", "426 broken off"), -1, "", nil},
		{"too many lines", lines(strings.Repeat(line, maxEntries+1), "226 done"), maxEntries - 100, "", errListingLimit},
		{"a line without an end", lines(line+strings.Repeat("x", maxListing), "226 done"), 1, "", errNotFTP},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, &ftptest.Server{Features: []string{}, Transfer: c.transfer})
			resp, page, err := visit(t, http.MethodGet, "ftp://"+s.Addr()+"/pub/", nil)
			if !errors.Is(err, c.err) {
				t.Errorf("%v, want %v", err, c.err)
			}
			if c.rows < 0 {
				if resp.StatusCode != http.StatusServiceUnavailable {
					t.Error(resp.Status)
				}
				return
			}
			if n := len(rows(page)) - 1; n < c.rows || c.rows < 100 && n != c.rows { // without the row of the parent directory
				t.Errorf("%d rows, want %d", n, c.rows)
			}
			if !strings.Contains(page, c.note) || c.note == "" && strings.Contains(page, "<p>") {
				t.Error(page)
			}
			if c.err != nil && resp.ContentLength >= 0 {
				t.Errorf("%d bytes are announced of a page that breaks off", resp.ContentLength)
			}
		})
	}
}
