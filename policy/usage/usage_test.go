package usage_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"robotsproxy/policy/usage"
	"robotsproxy/robots"
)

var all = []usage.Category{usage.TrainAI, usage.AIInput, usage.Search, usage.TDM}

// A vector is a line of testdata/statements.jsonl.
type vector struct {
	Clause string      `json:"clause"`
	Robots string      `json:"robots"`
	Path   string      `json:"path"`
	TDMRep string      `json:"tdmrep"` // "1" or "0" for every path; "": there is no such file
	Header http.Header `json:"header"`
	Want   string      `json:"want"` // what is not unknown
}

func vectors(t testing.TB) []vector {
	f, err := os.Open("testdata/statements.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var read []vector
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		read = append(read, v)
	}
	return read
}

// statements reads what a site says to the client FooBot.
func (v *vector) statements() []usage.Statement {
	g := robots.Parse([]byte(v.Robots), robots.Standard()).For("FooBot")
	before := usage.FromRobots(g.ContentSignalLines(v.Path, new(robots.Effort)), g.ContentUsage(v.Path))
	if v.TDMRep != "" {
		before = append(before, usage.FromTDMRep("/", v.TDMRep == "1"))
	}
	return usage.Supersede(usage.Deciding(before), usage.FromResponse(v.Header, []string{"FooBot"}))
}

func TestStatements(t *testing.T) {
	for _, v := range vectors(t) {
		var got []string
		for _, c := range all {
			if p, by := usage.Decide(c, v.statements()); p != usage.Unknown {
				got = append(got, c.String()+"="+p.String())
				if by == nil || by.Says[c] != p {
					t.Errorf("%s: %s is decided by %+v", v.Clause, c, by)
				}
			}
		}
		if got := strings.Join(got, " "); got != v.Want {
			t.Errorf("%s: got %q, want %q", v.Clause, got, v.Want)
		}
	}
}

// A statement says where it stands and what was written there.
func TestStatementsNameTheirSource(t *testing.T) {
	v := vector{
		Robots: "User-Agent: *\nContent-Signal: ai-train=no\nContent-Usage: /a search=n\n", Path: "/a", TDMRep: "1",
		Header: http.Header{"X-Robots-Tag": {"nofollow", "noai"}},
	}
	var got []string
	for _, s := range v.statements() {
		got = append(got, s.Source+" "+s.String())
	}
	want := []string{"robots.txt Content-Signal: ai-train=no", "robots.txt Content-Usage: search=n", "tdmrep.json tdm-reservation: 1 for /", "header X-Robots-Tag X-Robots-Tag: noai"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if s := v.statements(); s[0].Line != 2 || s[1].Line != 3 || s[2].Line != 0 {
		t.Errorf("lines of %+v", s)
	}
}

// Deciding keeps at most one statement for each category, and what it keeps decides as all do.
func FuzzDeciding(f *testing.F) {
	f.Add([]byte{0x10, 0x21, 0, 0xff})
	f.Fuzz(func(t *testing.T, says []byte) {
		var statements []usage.Statement
		for i, b := range says {
			s := usage.Statement{Line: i + 1}
			for c := range s.Says {
				s.Says[c] = usage.Preference(b >> (2 * c) % 4 % 3)
			}
			statements = append(statements, s)
		}
		kept := usage.Deciding(statements)
		if len(kept) > len(all) {
			t.Errorf("%d statements are kept", len(kept))
		}
		for _, c := range all {
			want, _ := usage.Decide(c, statements)
			got, by := usage.Decide(c, kept)
			_, whole := usage.Decide(c, statements)
			if got != want || got != combined(c, statements) || (by == nil) != (whole == nil) || by != nil && by.Line != whole.Line {
				t.Errorf("%s: %s by %+v, want %s by %+v", c, got, by, want, whole)
			}
		}
	})
}

// combined is the process of draft-ietf-aipref-vocab, Combining Preferences, word by word.
func combined(c usage.Category, statements []usage.Statement) usage.Preference {
	has := func(p usage.Preference) bool {
		return slices.ContainsFunc(statements, func(s usage.Statement) bool { return s.Says[c] == p })
	}
	switch {
	case has(usage.Disallowed):
		return usage.Disallowed
	case has(usage.Allowed):
		return usage.Allowed
	}
	return usage.Unknown
}

// FuzzRobots holds what FromRobots reads against a naive reading of the lines.
func FuzzRobots(f *testing.F) {
	for _, v := range vectors(f) {
		for line := range strings.Lines(v.Robots) {
			_, value, _ := strings.Cut(line, ":")
			f.Add(strings.TrimSpace(value))
		}
	}
	f.Add("\fai-train=no")
	f.Fuzz(func(t *testing.T, text string) {
		signals := usage.FromRobots([]robots.UsageLine{{Number: 1, Text: text}}, nil)
		for _, c := range all {
			want := naiveSignal(map[usage.Category]string{usage.TrainAI: "ai-train", usage.AIInput: "ai-input", usage.Search: "search"}[c], text)
			if got, _ := usage.Decide(c, signals); got != want {
				t.Errorf("Content-Signal: %q: %s is %s, want %s", text, c, got, want)
			}
		}
		stated := usage.FromRobots(nil, []robots.UsageLine{{Number: 1, Text: text}})
		for _, c := range all {
			if got, by := usage.Decide(c, stated); got != usage.Unknown && !strings.Contains(text, c.String()) {
				t.Errorf("Content-Usage: %q: %s is %s by %+v", text, c, got, by)
			}
		}
	})
}

// naiveSignal reads a Content-Signal line for one signal: "no" anywhere wins.
func naiveSignal(name, text string) (p usage.Preference) {
	const white = " \t\n\v\f\r" // what robots.txt readers trim
	if name == "" {
		return usage.Unknown
	}
	for _, part := range strings.Split(strings.ToLower(text), ",") {
		parts := strings.SplitN(part, "=", 2)
		if len(parts) != 2 || strings.Trim(parts[0], white) != name {
			continue
		}
		switch strings.Trim(parts[1], white) {
		case "no":
			return usage.Disallowed
		case "yes":
			p = usage.Allowed
		}
	}
	return p
}

// A header of the greatest length that a response may have takes little memory.
func TestLongHeadersAreBounded(t *testing.T) {
	const length = 250 << 10 // bytes
	for name, text := range map[string]string{
		"members":       "train-ai=n" + strings.Repeat(",a", length/2),
		"parameters":    "train-ai=n" + strings.Repeat(";a", length/2),
		"an inner list": "train-ai=n, a=(" + strings.Repeat("a ", length/2) + ")",
		"directives":    "noai" + strings.Repeat(",a:b", length/4),
	} {
		h := http.Header{"Content-Usage": {text}, "Content-Signal": {text}, "Tdm-Reservation": {text}, "X-Robots-Tag": {text}}
		if n := testing.AllocsPerRun(10, func() { usage.FromResponse(h, []string{"FooBot"}) }); n > 100 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	h := http.Header{"Content-Usage": {"train-ai=n" + strings.Repeat(",a", 4<<10)}}
	if said, _ := usage.Decide(usage.TrainAI, usage.FromResponse(h, nil)); said != usage.Disallowed {
		t.Errorf("8 KiB: train-ai is %s", said)
	}
}

// The text of a statement is bounded, since refusals repeat it, and all of it counts.
func TestLongStatementsAreCut(t *testing.T) {
	long := strings.Repeat("<", 100<<10)
	all := usage.FromResponse(http.Header{"X-Robots-Tag": {long + ",noai"}, "Content-Signal": {long + ",ai-train=no"}, "Tdm-Reservation": {long, "1"}}, nil)
	for _, s := range append(all, usage.FromTDMRep(long, true)) {
		if len(s.Text) != 2<<10+len("…") || s.Says[usage.TrainAI] != usage.Disallowed {
			t.Errorf("%s: %d bytes, train-ai is %s", s.Field, len(s.Text), s.Says[usage.TrainAI])
		}
	}
	if len(all) != 3 {
		t.Errorf("%d statements", len(all))
	}
}

// FuzzResponse reads headers of strangers: a tag for another agent alone must say nothing.
func FuzzResponse(f *testing.F) {
	for _, v := range vectors(f) {
		for _, name := range []string{"Content-Usage", "Content-Signal", "Tdm-Reservation", "X-Robots-Tag"} {
			for _, line := range v.Header[name] {
				f.Add(line)
			}
		}
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, name := range []string{"Content-Usage", "Content-Signal", "Tdm-Reservation", "X-Robots-Tag"} {
			usage.FromResponse(http.Header{name: {line, line}}, []string{"FooBot"})
		}
		if strings.Contains(line, ":") {
			return
		}
		if s := usage.FromResponse(http.Header{"X-Robots-Tag": {"otherbot: " + line}}, []string{"FooBot"}); s != nil {
			t.Errorf("another agent's %q says %+v", line, s)
		}
		own := usage.FromResponse(http.Header{"X-Robots-Tag": {"FOOBOT: " + line}}, []string{"FooBot"})
		plain := usage.FromResponse(http.Header{"X-Robots-Tag": {line}}, []string{"FooBot"})
		for _, c := range all {
			a, _ := usage.Decide(c, own)
			if b, _ := usage.Decide(c, plain); a != b {
				t.Errorf("%q with the client's name: %s is %s, without %s", line, c, a, b)
			}
		}
	})
}

func TestCategories(t *testing.T) {
	for _, c := range all {
		if got, known := usage.ParseCategory(c.String()); !known || got != c {
			t.Errorf("%s: %v, %v", c, got, known)
		}
	}
	if _, known := usage.ParseCategory("train"); known {
		t.Error("train is known")
	}
	s := usage.SetOf(usage.TDM, usage.TrainAI)
	if s.String() != "train-ai, tdm" || s.Has(usage.Search) || usage.Set(0).String() != "" {
		t.Errorf("the set is %q", s)
	}
}

// Where a site says nothing, reading what it says allocates nothing.
func TestNoStatementAllocatesNothing(t *testing.T) {
	h := http.Header{"Content-Type": {"text/html"}}
	if n := testing.AllocsPerRun(100, func() {
		usage.Supersede(usage.Deciding(usage.FromRobots(nil, nil)), usage.FromResponse(h, nil))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
