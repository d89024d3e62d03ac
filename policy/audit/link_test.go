package audit

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"robotsproxy/policy/audit/trail"
)

func TestLicenseLinks(t *testing.T) {
	for _, c := range []struct {
		name, want string
		lines      []string
	}{
		{"RSL 1.0", "https://a.test/l.xml", []string{`<https://a.test/l.xml>; rel="license"; type="application/rsl+xml"`}},
		{"no quotes, and spaces (RFC 8288 3)", "/l", []string{` <>; rel=next ,	< /l >	;rel = license`}},
		{"one of several relations, in any case (3.3)", "/l", []string{`</l>; REL="copyright License"`}},
		{"the first rel counts (3.3)", "", []string{`</l>; rel=next; rel=license`}},
		{"a comma and a semicolon in the URL", "/l,;rel=x", []string{`</l,;rel=x>; rel=license`}},
		{"a comma in a quoted string", "/m", []string{`</l>; title="a, <b>; rel=license"; rel=next, </m>; rel=license`}},
		{"a quoted quote", "/l", []string{`</l>; title="\", <b>"; rel="license"`}},
		{"an anchor is another resource (3.2)", "", []string{`</l>; anchor="/x"; rel=license`}},
		{"in two lines, and two in one", "/a /b /c", []string{`</a>;rel=license`, `</x>;rel=icon,</b>;rel=license,</c>;rel=license`}},
		{"no more than four", "/1 /2 /3 /4", []string{strings.Repeat(`</1>;rel=license,</2>;rel=license,</3>;rel=license,</4>;rel=license,`, 1000)}},
		{"another relation", "", []string{`</l>; rel="licensed"`, `</l>; rel="x-license"`, `</l>`, `</l>; rel`}},
		{"no URL in brackets", "", []string{`/l; rel=license`, `</l; rel=license`, `x</l>; rel=license`, `;`, `,`, `"`}},
	} {
		var want []string
		if c.want != "" {
			want = strings.Fields(c.want)
		}
		var got []string
		for _, target := range licenseLinks(c.lines) {
			got = append(got, strings.TrimSpace(target))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
}

// Neither a title nor another link beside it changes the license of a response.
func FuzzLicenseLinks(f *testing.F) {
	for _, s := range []string{`a`, `", <b>; rel=license`, `\`, `;`, `rel=license`, `<`, `>`, "\x00é"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, title, url string) {
		licenseLinks([]string{title, url})
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(title) + `"`
		url = strings.ReplaceAll(url, ">", "")
		for _, line := range []string{
			`<` + url + `>; title=` + quoted + `; rel="license"`,
			`</style>; title=` + quoted + `; rel=preload, <` + url + `>;rel=license`,
		} {
			if got := licenseLinks([]string{line}); !slices.Equal(got, []string{url}) {
				t.Errorf("%q: %q, want %q", line, got, url)
			}
		}
	})
}

// A record has the licenses of robots.txt and those of the response, once.
func TestLineHasTheLicenses(t *testing.T) {
	long := "https://site.test/" + strings.Repeat("é", 5000)
	for _, c := range []struct{ robots, link, want string }{
		{"", "", ""},
		{"https://a.test/l", "", "https://a.test/l"},
		{"", "/l", "/l"},
		{"https://a.test/l", "https://a.test/l", "https://a.test/l"},
		{"https://a.test/l", "/m", "https://a.test/l /m"},
		{"", "/\"\x1b\u202e", "/\"\x1b\u202e"},
	} {
		r := allowed()
		r.Decision.Licenses = c.robots
		r.Preferences = PreferencesOf(http.Header{"Link": {"<" + c.link + ">; rel=license"}})
		e, err := trail.Read([]byte(encoded(r, Options{}) + "}"))
		if err != nil || e.License != c.want {
			t.Errorf("%q and %q: %q, %v", c.robots, c.link, e.License, err)
		}
		r.Preferences = PreferencesOf(http.Header{"Link": {"<" + long + ">; rel=license"}})
		if e, err = trail.Read([]byte(encoded(r, Options{}) + "}")); err != nil || len(e.License) > trail.MaxText {
			t.Errorf("%d bytes of a license, %v", len(e.License), err)
		}
	}
}
