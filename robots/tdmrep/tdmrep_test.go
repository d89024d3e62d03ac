package tdmrep_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"robotsproxy/robots"
	"robotsproxy/robots/tdmrep"
	"robotsproxy/robots/testkit"
)

var reservations = map[string]tdmrep.Reservation{"unset": tdmrep.Unset, "not reserved": tdmrep.NotReserved, "reserved": tdmrep.Reserved}

// TestCases checks the clauses of the report; each case names its section.
func TestCases(t *testing.T) {
	f, err := os.Open("testdata/cases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); n++ {
		var c struct {
			Clause, Name, File, Path, Reservation, Policy string
			Rule                                          int
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		file, err := tdmrep.Parse([]byte(c.File))
		if err != nil {
			t.Errorf("%s: %s: %v", c.Clause, c.Name, err)
			continue
		}
		got, ok := file.Match(c.Path)
		if ok != (c.Rule > 0) || got.Index != c.Rule || got.Reservation != reservations[c.Reservation] || got.Policy != c.Policy || got.GaveUp {
			t.Errorf("%s: %s: %s: got %+v, %t, want rule %d, %s, policy %q", c.Clause, c.Name, c.Path, got, ok, c.Rule, c.Reservation, c.Policy)
		}
		agree(t, c.File, c.Path)
	}
	if n == 0 {
		t.Error("no cases")
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"an empty file", "", "unexpected end of JSON input"},
		{"an object in place of the array", `{"location":"/","tdm-reservation":1}`, "it must be an array of rules"},
		{"null", "null", "it must be an array of rules"},
		{"a number", "1", "it must be an array of rules"},
		{"a cut array", `[{"location":"/","tdm-reservation":1}`, "unexpected end of JSON input"},
		{"a last comma", `[{"location":"/","tdm-reservation":1},]`, "invalid character ']'"},
		{"a comment", "[] // none", "invalid character '/'"},
		{"two arrays", "[][]", "invalid character '['"},
		{"an HTML page", "\n<!doctype html><title>Not found</title>", "it is an HTML page"},
		{"no UTF-8", "[{\"location\":\"/\xe9\",\"tdm-reservation\":1}]", "it is not UTF-8"},
		{"UTF-16", "\xff\xfe[\x00]\x00", "it is not UTF-8"},
		{"two byte order marks", "\ufeff\ufeff[]", "invalid character"},
		{"deep nesting", "[" + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "]", "invalid character '[' exceeded max depth"},
		{"too many elements", "[1" + strings.Repeat(",1", 65535) + "]", "it has more than 65535 elements"},
		{"a text that may have been cut", "[]" + strings.Repeat(" ", robots.MaxBytes-2), "it has 512000 bytes or more"},
		{"a location of more than a line of a robots.txt", `[{"location":"/` + strings.Repeat("a", 16663) + `","tdm-reservation":1}]`, "pattern 1 is longer than 16663 bytes"},
	} {
		f, err := tdmrep.Parse([]byte(c.text))
		if f != nil || err == nil || !strings.HasPrefix(err.Error(), "parse tdmrep.json: "+c.want) {
			t.Errorf("%s: got %v, %v, want %q", c.name, f, err, c.want)
		}
		if r, ok := f.Match("/"); ok || r != (tdmrep.Rule{}) || f.Size() != 0 {
			t.Errorf("%s: a nil file has the rule %+v, and %d bytes", c.name, r, f.Size())
		}
	}
}

func TestByteOrderMark(t *testing.T) {
	f, err := tdmrep.Parse([]byte("\ufeff[{\"location\":\"/\",\"tdm-reservation\":1}]\r\n"))
	if r, ok := f.Match("/"); err != nil || !ok || r.Reservation != tdmrep.Reserved {
		t.Errorf("got %+v, %t, %v", r, ok, err)
	}
}

// TestMatchGivesUp checks that a hostile file cannot take more time than a robots.txt can, and that the
// rule is not known then.
func TestMatchGivesUp(t *testing.T) {
	rnd, rules := rand.New(rand.NewPCG(3, 9309)), []string{}
	word := func(letters string, n int) string {
		return strings.Map(func(rune) rune { return rune(letters[rnd.IntN(len(letters))]) }, strings.Repeat("x", n))
	}
	for range 7000 {
		rules = append(rules, fmt.Sprintf(`{"location":"*%s*%s*z","tdm-reservation":0}`, word("ab", 8), word("ab", 10)))
	}
	f, err := tdmrep.Parse([]byte("[" + strings.Join(rules, ",") + "]"))
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := f.Match("/" + word("ab", 8<<10)); !ok || r != (tdmrep.Rule{GaveUp: true}) {
		t.Errorf("got %+v, %t", r, ok)
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	f, err := tdmrep.Parse([]byte(`[{"location":"/a","tdm-reservation":1,"tdm-policy":"https://a.test/"},{"location":"*.jpg$","tdm-reservation":0}]`))
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { f.Match("/b/c.jpg?d=%41") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// oracle returns the position and the reservation of the rule that applies to a path, found by one robots.txt for
// each rule; 0: none.
func oracle(text, path string) (index int, reservation any, err error) {
	var rules []any
	if err := json.Unmarshal([]byte(strings.TrimPrefix(text, "\ufeff")), &rules); err != nil {
		return 0, nil, err
	}
	escape := strings.NewReplacer("\n", "%0A", "\r", "%0D", "\t", "%09", "\v", "%0B", "\f", "%0C", "\x00", "%00", " ", "%20")
	for i, r := range rules {
		rule, _ := r.(map[string]any)
		location, ok := rule["location"].(string)
		reservation, stated := rule["tdm-reservation"]
		if !ok || !stated || strings.Contains(location, "#") { // "#" begins a comment in a robots.txt, and is in no path
			continue
		}
		robotsTxt := "User-agent: *\nDisallow: " + escape.Replace(location)
		if !robots.Parse([]byte(robotsTxt), robots.Standard()).For().Match(path).Allow {
			return i + 1, reservation, nil
		}
	}
	return 0, nil, nil
}

// agree fails the test if a file and the oracle disagree.
func agree(t *testing.T, text, path string) {
	t.Helper()
	if strings.Contains(path, "#") {
		return
	}
	f, err := tdmrep.Parse([]byte(text))
	index, reservation, oracleErr := oracle(text, path)
	if err != nil {
		return // TestParseErrors says which texts are errors
	}
	if oracleErr != nil {
		if !strings.Contains(oracleErr.Error(), "out of range") && !strings.Contains(oracleErr.Error(), "cannot unmarshal number") {
			t.Fatalf("%q: no error, want %v", text, oracleErr)
		}
		return
	}
	r, _ := f.Match(path)
	want := map[any]tdmrep.Reservation{0.0: tdmrep.NotReserved, 1.0: tdmrep.Reserved}
	if _, isNumber := reservation.(float64); !isNumber {
		reservation = nil
	}
	if r.Index != index || r.Reservation != want[reservation] && strings.Count(text, "tdm-reservation") < 2 {
		t.Fatalf("%q for %q: got %+v, want rule %d with %v", path, text, r, index, reservation)
	}
}

func TestOracle(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2019, 790))
	pick := func(s ...string) string { return s[rnd.IntN(len(s))] }
	some := func(most int, pieces ...string) (s string) {
		for range rnd.IntN(most + 1) {
			s += pick(pieces...)
		}
		return s
	}
	for range testkit.Rounds(5000) {
		var rules []string
		for range rnd.IntN(300) % (1 + rnd.IntN(300)) { // often few, sometimes more than a byte can count
			location, _ := json.Marshal(pick("/", "/", "/", "*", "", "x") + some(5, "a", "a", "b", "/", "*", "*", "$", "%", "%2A", "%24", "%61", "%2f", "é", "?", " ") + pick("", "", "$", "*"))
			rules = append(rules, fmt.Sprintf(`{"location":%s,"tdm-reservation":%s}`, location, pick("0", "1", "1", `"1"`, "2")))
		}
		agree(t, "["+strings.Join(rules, ",")+"]", pick("", "/", "/", "/")+some(6, "a", "a", "b", "/", "*", "$", "%", "%2A", "%24", "%61", "%2F", "é", "%c3%a9", "?"))
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`[{"location":"/a*b$","tdm-reservation":1,"tdm-policy":"https://a.test/"}]`), "/ab")
	f.Add([]byte("\ufeff[{\"location\":\"/\\u00e9\",\"tdm-reservation\":\"1\"},null,{\"location\":\"*\",\"tdm-reservation\":0}]"), "/%C3%A9")
	f.Fuzz(func(t *testing.T, text []byte, path string) {
		if len(text) > 4<<10 || len(path) > 1<<10 {
			return // the oracle is slow
		}
		agree(t, string(text), path)
	})
}
