package archive_test

import (
	"net/http"
	"strings"
	"testing"

	"robotsproxy/proxy/archive"
)

// Users and passwords in URLs are secrets.
func TestURLsInHeads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		keep, drop bool
		want       string
	}{
		{false, false, "http://b.example/?q=@#@ //b.example /a@b?c@d mailto:a@b b.example//u:p@c"},
		{true, false, "http://u:p@b.example/?q=@#@ //u@b.example /a@b?c@d mailto:a@b b.example//u:p@c"},
		{false, true, "http://b.example/ //b.example /a@b mailto:a@b b.example//u:p@c"},
	} {
		dir := t.TempDir()
		a := open(t, dir, func(o *archive.Options) { o.KeepSecrets, o.DropQuery = c.keep, c.drop })
		var got []string
		for _, url := range []string{"http://u:p@b.example/?q=@#@", "//u@b.example", "/a@b?c@d", "mailto:a@b", "b.example//u:p@c"} {
			r := get("http://a.example/")
			r.Header.Set("Referer", url)
			if _, err := (exchange{request: r, header: http.Header{"Location": {url}}}).run(a); err != nil {
				t.Fatal(err)
			}
		}
		a.Close()
		all := entries(t, dir)
		for i, r := range of(all, "request") {
			_, referer, _ := strings.Cut(r.block, "Referer: ")
			_, location, _ := strings.Cut(of(all, "response")[i].block, "Location: ")
			if referer != location {
				t.Errorf("Referer %q, Location %q", referer, location)
			}
			got = append(got, strings.TrimSpace(referer))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// ISO 28500 5.9: WARC-Target-URI is a URI (RFC 3986), whatever the request has.
func TestTargetURI(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://a.example":                   "http://a.example/",
		"http://a.example?":                  "http://a.example/?",
		"http://a.example/\xff?\xff\xc3\xa4": "http://a.example/%FF?%FF%C3%A4",
		"http://a.example/?%ff+ \"<>|'[]":    "http://a.example/?%ff+%20%22%3C%3E|'[]",
		"http://u:p@a.example:81/a%2fb?c#d":  "http://a.example:81/a%2fb?c",
		"ftp://u:p@a.example/x":              "ftp://a.example/x",
	} {
		dir := t.TempDir()
		a := open(t, dir, nil)
		if _, err := (exchange{request: get(url)}).run(a); err != nil {
			t.Fatal(err)
		}
		a.Close()
		for _, e := range entries(t, dir) {
			if e.Type() != "warcinfo" && e.TargetURI() != want {
				t.Errorf("%q: %s has %q, want %q", url, e.Type(), e.TargetURI(), want)
			}
		}
	}
}
