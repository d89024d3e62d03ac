package policy

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"robotsproxy/robots"
)

func TestWithoutDots(t *testing.T) {
	for in, want := range map[string]string{
		"/":                   "/",
		"/a/../b":             "/b",
		"/a/./b":              "/a/b",
		"/a/..":               "/",
		"/a/b/..":             "/a/",
		"/a/.":                "/a/",
		"/../../a":            "/a",
		"/a/%2e%2E/b":         "/b",
		"/a/.%2e/b":           "/b",
		"/.well-known/x":      "/.well-known/x",
		"/a/...":              "/a/...",
		"/a/%2e%2e%2e/b":      "/a/%2e%2e%2e/b",
		"/a/%2e.%2e/b":        "/a/%2e.%2e/b",
		"/a/%2":               "/a/%2",
		"/a/..b":              "/a/..b",
		"/%20/b":              "/%20/b",
		"/a//../b":            "/a/b",
		"/..":                 "/",
		"/.":                  "/",
		"//..//./x":           "//x",
		"*":                   "*",
		"/mid/content=5/../6": "/mid/6",
	} {
		if got := withoutDots(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// TestReadings has each form of a path that servers read otherwise than it was
// sent, alone and with others.
func TestReadings(t *testing.T) {
	for path, want := range map[string][]string{
		"/":               nil,
		"/a?b=//c;d/../e": nil,
		"/a%20b/c.d/e..":  nil,
		"/a%252Fb":        nil, // decoded once, it would still be no slash
		"/a%41%24%2A%3F":  nil, // compared with rules in one spelling, or no punctuation of a path

		"/a/../b?c":       {"/b?c dots-removed"},
		"/a/%2e%2E/b":     {"/b dots-removed"},
		"/.well-known/x":  nil,
		"/a/b/..?x=/../y": {"/a/?x=/../y dots-removed"},

		"//private/x":         {"/private/x slashes-merged"},
		"/a//../private/x":    {"/a/private/x dots-removed", "/private/x slashes-merged+dots-removed"},
		"/a///b//?c//d":       {"/a/b/?c//d slashes-merged"},
		"//private//../x":     {"//private/x dots-removed", "/x slashes-merged+dots-removed", "/private/x slashes-merged+dots-removed"},
		"/web/2020/https://e": {"/web/2020/https:/e slashes-merged"},

		"/private%2Fx":          {"/private/x slashes-decoded"},
		"/private%2fx":          {"/private/x slashes-decoded"},
		"/%5cprivate/x":         {"//private/x slashes-decoded", "/private/x slashes-decoded+slashes-merged"},
		"/a\\..\\private\\x":    {"/private/x slashes-decoded+dots-removed"},
		"/a%2F..%2fprivate":     {"/private slashes-decoded+dots-removed"},
		"/a%5C%2e%2e/private/x": {"/private/x slashes-decoded+dots-removed"},

		"/a\\b%2f..%5Cx": {
			"/a/x slashes-decoded+dots-removed", "/a\\b/..%5Cx slashes-decoded", "/a/b%2f../x slashes-decoded",
		},
		"/a%3a%5B?%3A": {"/a:[?%3A punctuation-decoded"},
		"//%40":        {"/%40 slashes-merged", "//@ punctuation-decoded", "/@ slashes-merged+punctuation-decoded"},

		"/private;v=1/x":    {"/private/x parameters-stripped"},
		"/a/..;/private/x":  {"/private/x parameters-stripped+dots-removed"},
		"/a;b;c/d;e?f;g":    {"/a/d?f;g parameters-stripped"},
		"/;a/b":             {"//b parameters-stripped", "/b parameters-stripped+slashes-merged"},
		"/;/..;/../private": {"/;/private dots-removed", "/private parameters-stripped+dots-removed", "//private parameters-stripped+dots-removed"},

		"/a;x=%2Fb/%2Fc": {
			"/a;x=/b//c slashes-decoded", "/a/%2Fc parameters-stripped",
			"/a/b//c slashes-decoded+parameters-stripped", "/a//c slashes-decoded+parameters-stripped",
			"/a;x=/b/c slashes-decoded+slashes-merged",
			"/a/b/c slashes-decoded+parameters-stripped+slashes-merged", "/a/c slashes-decoded+parameters-stripped+slashes-merged",
		},
	} {
		var got []string
		for read, form := range forms(path, changesOf(path), new(robots.Effort)) {
			got = append(got, read+" "+form.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", path, got, want)
		}
	}
}

// FuzzReadings holds the readings of a path to those of a program that takes it
// apart and joins it again at each step.
func FuzzReadings(f *testing.F) {
	for _, path := range []string{"/a/..;/private/x", "//private%2Fx?q;//", "/%5c..%2f/.;./%2e%2E/b\\c;d", "/a;x=%2Fb/%2Fc%252F", "/./../.", "/a/b/c/%2e.;/;/..", "//a%3bb//../%3B;/c", "/%2fa/b%2f../../..;/c//;//..%3b/..", "/a%5Cb%2F..%2F%3A;\\x/%7c"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if path = "/" + path; len(path) > 1<<6 {
			return
		}
		var got []string
		for read, form := range forms(path, changesOf(path), new(robots.Effort)) {
			if form == 0 || form.String() == "" {
				t.Fatalf("%q: %q has no form", path, read)
			}
			got = append(got, read)
		}
		if len(got) > 210 {
			t.Fatalf("%q: %d readings", path, len(got))
		}
		slices.Sort(got)
		if want := naiveReadings(path); !slices.Equal(got, want) {
			t.Fatalf("%q:\n got %q\nwant %q", path, got, want)
		}
	})
}

// What naiveReadings decodes: made once, since it is called for each of many inputs.
var (
	slash       = strings.NewReplacer("%2f", "/", "%2F", "/")
	backslash   = strings.NewReplacer("%5c", "/", "%5C", "/", "\\", "/")
	anySlash    = strings.NewReplacer("%2f", "/", "%2F", "/", "%5c", "/", "%5C", "/", "\\", "/")
	semicolon   = strings.NewReplacer("%3b", ";", "%3B", ";")
	dot         = strings.NewReplacer("%2e", ".", "%2E", ".")
	punctuation = regexp.MustCompile(`(?i)%(2[126-9BC]|3[ACDE]|40|5[BDE]|60|7[BCD])`)
)

// naiveReadings applies each choice of changes that servers make to a path, without
// checking which of them matter.
func naiveReadings(pathQuery string) []string {
	path, query, asked := strings.Cut(pathQuery, "?")
	if asked {
		query = "?" + query
	}
	type step = func(string) string
	slashes := []step{slash.Replace, backslash.Replace, anySlash.Replace}
	strip := func(path string) string {
		segments := strings.Split(path, "/")
		for i, s := range segments {
			segments[i], _, _ = strings.Cut(s, ";")
		}
		return strings.Join(segments, "/")
	}
	parameters := []step{strip, func(path string) string { return strip(semicolon.Replace(path)) }}
	merge := func(path string) string {
		for strings.Contains(path, "//") {
			path = strings.ReplaceAll(path, "//", "/")
		}
		return path
	}
	mergeAfterDots := func(path string) string { return merge(naiveDots(path)) }
	decode := func(path string) string {
		return punctuation.ReplaceAllStringFunc(path, func(escape string) string {
			decoded, _ := url.PathUnescape(escape) // the pattern has escapes alone
			return decoded
		})
	}
	// some returns all, and the result of each step for each of them.
	some := func(all []string, steps ...step) []string {
		for _, path := range all {
			for _, change := range steps {
				all = append(all, change(path))
			}
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	all := some(some([]string{path}, decode), naiveDots)
	all = append(some(some(slices.Clone(all), slashes...), parameters...), some(some(all, parameters...), slashes...)...)
	var reads []string
	for _, read := range some(all, merge, mergeAfterDots) {
		if read = naiveDots(read); read != path {
			reads = append(reads, read+query)
		}
	}
	slices.Sort(reads)
	return slices.Compact(reads)
}

// naiveDots removes dot segments one by one, the first ".." first.
func naiveDots(path string) string {
	segments := strings.Split(path, "/")[1:]
	is := func(s, dots string) bool {
		return dot.Replace(s) == dots
	}
	for i := 0; i < len(segments); i++ {
		up := is(segments[i], "..")
		if !up && !is(segments[i], ".") {
			continue
		}
		if i == len(segments)-1 {
			segments = append(segments, "")
		}
		from := i
		if up && i > 0 {
			from = i - 1
		}
		segments = slices.Delete(segments, from, i+1)
		i = from - 1
	}
	return "/" + strings.Join(segments, "/")
}

// TestJudgementAllocatesNothing: a path that all servers read alike costs no more
// than one scan.
func TestJudgementAllocatesNothing(t *testing.T) {
	g := robots.Parse([]byte("User-agent: *\nDisallow: /private\n"), robots.Standard()).For("FooBot")
	r := Request{Target: robots.Target{Origin: robots.Origin{Scheme: "https"}, PathQuery: "/a/b.c/d%20e/f..?g=//h;i/../j"}}
	if n := testing.AllocsPerRun(100, func() { matchForms(g, &r, allChanges) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkJudgement(b *testing.B) {
	g := robots.Parse([]byte("User-agent: *\nDisallow: /private\n"), robots.Standard()).For("FooBot")
	for name, path := range map[string]string{
		"usual":            "/products/shoes/running-42/index.html?colour=blue&size=42",
		"merged slashes":   "/web/2020/https://example.org/",
		"parameters":       "/shop/list.do;jsessionid=1234567890?page=2",
		"all, 8 KiB":       strings.Repeat("/./..;a/b//c%2Fd", 8<<10/16),
		"all, 64 KiB":      strings.Repeat("/./..;a/b//c%2Fd", 64<<10/16),
		"dots, 8 KiB":      strings.Repeat("/.", 8<<10/2),
		"long query,64KiB": "/a//b%2Fc;d?" + strings.Repeat("%20query", 64<<10/8),
	} {
		b.Run(name, func(b *testing.B) {
			r := Request{Target: robots.Target{Origin: robots.Origin{Scheme: "https"}, PathQuery: path}}
			b.ReportAllocs()
			var j matchResult
			for b.Loop() {
				j = matchForms(g, &r, allChanges)
			}
			b.ReportMetric(float64(j.spent), "steps")
		})
	}
}
