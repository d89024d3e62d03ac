package trail

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"
)

// saltedLine returns a line with the members, and its hash.
func saltedLine(members string) (line string, hash Hash) {
	var s Salter
	b, hash := s.AppendSalted([]byte("before\n"+`{"time":"2026-11-28T00:00:00Z"`+members+VersionMember), len("before\n"), 7, Hash{1})
	return strings.TrimSuffix(strings.TrimPrefix(string(b), "before\n"), "\n"), hash
}

const salted1 = `,"id":"a","client":"lab-a","method":"GET","url":"https://a.test/p?q=\"x","host":"a.test","user_agent":"Bot/1 (\\)","robots_url":"https://a.test/robots.txt"`

// TestHashedForm computes the hash of a line as the documentation defines it.
func TestHashedForm(t *testing.T) {
	for _, members := range []string{
		salted1,
		`,"id":"a","client":"","url":"https://a.test"`,
		`,"id":"a","method":"CONNECT","url":"a.test:443"`,
		`,"id":"a","url":"https://a.test?q","url_base64":"aHR0cDov"`,
		`,"id":"a","url":"/no/host"`,
		`,"id":"a","url":"/secret://other/path"`,
		`,"id":"a","url":"a.test/secret://other/path"`,
		`,"kind":"event","event":"counted","count":3,"clients":1,"client":"lab-b"`,
		`,"kind":"event","event":"stop"`,
	} {
		line, hash := saltedLine(members)
		body, rest, _ := strings.Cut(line, `,"hash":"`)
		for _, name := range []string{"client", "url", "url_base64", "user_agent"} {
			_, salt, found := strings.Cut(rest, fmt.Sprintf(`"%s":"`, name))
			if !found {
				continue
			}
			random, err := base64.RawURLEncoding.DecodeString(salt[:22])
			begins := fmt.Sprintf(`,"%s":"`, name)
			before, value, _ := strings.Cut(body, begins)
			end := 0
			for value[end] != '"' || value[end-1] == '\\' && value[end-2] != '\\' {
				end++
			}
			after := value[end:]
			value = value[:end]
			slash := ""
			if name == "url" {
				at := len(regexp.MustCompile(`^(?:[^/?]*://)?[^/?]*`).FindString(value))
				begins, value, slash = begins+value[:at], value[at:], "/"
			}
			sum := sha256.Sum256(append(random, value...))
			body = before + begins + slash + "sha256:" + base64.RawURLEncoding.EncodeToString(sum[:]) + after
			if err != nil || len(random) != 16 {
				t.Errorf("salt %q: %v", salt[:22], err)
			}
		}
		if got := Hash(sha256.Sum256([]byte(body))); got != hash {
			t.Errorf("%s: the hash of %s is %v", line, body, got)
		}
		if l, err := ReadLink([]byte(line)); err != nil || l.Hash != hash || l.Seq != 7 || l.Prev != (Hash{1}) {
			t.Errorf("%s: %+v, %v", line, l, err)
		}
		if e, err := Read([]byte(line)); err != nil || e.Version != 3 {
			t.Errorf("%s: %+v, %v", line, e, err)
		}
	}
}

// TestEveryByteCounts changes each byte of a line.
func TestEveryByteCounts(t *testing.T) {
	line, _ := saltedLine(salted1)
	for i := range line {
		b := []byte(line)
		b[i]++
		if l, err := ReadLink(b); err == nil {
			t.Errorf("byte %d changed from %q to %q: %+v", i, line[i], b[i], l)
		}
	}
	for name, other := range map[string]string{
		"a salt removed":       strings.Replace(line, line[strings.Index(line, `"url":"`+saltOf(line, "url")):strings.LastIndex(line, `"user_agent"`)], "", 1),
		"all salts removed":    line[:strings.Index(line, saltsName)] + "}",
		"another salt":         strings.Replace(line, saltsEnd, `,"method":"AAAAAAAAAAAAAAAAAAAAAA"}}`, 1),
		"a comma at the end":   strings.Replace(line, saltsEnd, ",}}", 1),
		"a salt twice":         strings.Replace(line, saltsEnd, `,"user_agent":"`+saltOf(line, "user_agent")+saltsEnd, 1),
		"no salt":              strings.Replace(line, saltsName, saltsName+saltsEnd+saltsName, 1),
		"a member after salts": strings.Replace(line, saltsEnd, `},"x":"y"}`, 1),
	} {
		if l, err := ReadLink([]byte(other)); err == nil {
			t.Errorf("%s: %+v in %s", name, l, other)
		}
	}
}

// saltOf returns the salt of a member, with its last quote.
func saltOf(line, name string) string {
	_, salts, _ := strings.Cut(line, saltsName)
	_, salt, _ := strings.Cut(salts, `"`+name+`":"`)
	return salt[:saltLen+1]
}

// TestHiddenLine: a line without its values can be read, and says what was hidden.
func TestHiddenLine(t *testing.T) {
	bytes := `,"url":"https://a.test/%E9","url_base64":"aHR0cHM6Ly9hLnRlc3Qv6Q==",`
	line, _ := saltedLine(strings.Replace(salted1, `,"url":"https://a.test/p?q=\"x",`, bytes, 1))
	e, err := Read([]byte(line))
	if url, _ := e.RequestURL(); err != nil || url != "https://a.test/\xe9" || e.Hidden() || e.HiddenURL() || e.HiddenClient() {
		t.Errorf("before: %+v, %v", e, err)
	}
	for name, all := range map[string]bool{"": true, "client": false, "url": false, "user_agent": false} {
		hidden, n, err := Hide([]byte(line), func(member string, _ []byte) bool { return all || member == name })
		testkit.Must(t, err)
		e, err = Read(hidden)
		if err != nil || n == 0 || !e.Hidden() || e.HiddenURL() != (all || name == "url") || e.HiddenClient() != (all || name == "client") || all && e.URLBytes != nil {
			t.Errorf("%q: %+v, %v", name, e, err)
		}
	}
}

// TestHide hides each selection of values: the hash of the line stays the same, and the values are gone.
func TestHide(t *testing.T) {
	line, hash := saltedLine(salted1)
	values := map[string]string{"client": "lab-a", "url": `/p?q=\"x`, "user_agent": `Bot/1 (\\)`}
	names := []string{"client", "url", "user_agent"}
	for selection := range 8 {
		got, n, err := Hide([]byte(line), func(name string, value []byte) bool {
			if string(value) != values[name] {
				t.Errorf("%s is %s", name, value)
			}
			for i := range names {
				if names[i] == name {
					return selection>>i&1 == 1
				}
			}
			return false
		})
		l, erased, readErr := readLink(got)
		want := 0
		for i, name := range names {
			hidden := selection>>i&1 == 1
			if hidden {
				want++
			}
			if hidden == bytes.Contains(got, []byte(values[name])) || hidden == strings.Contains(string(got), `"`+name+`":"`+saltOf(line, name)) {
				t.Errorf("%s in %s", name, got)
			}
		}
		if err != nil || n != want || readErr != nil || l.Hash != hash || erased != want {
			t.Errorf("%d hidden, %v, %+v, %v, %d erased in %s", n, err, l, readErr, erased, got)
		}
		if again, n, err := Hide(got, func(string, []byte) bool { return false }); err != nil || n != 0 || !bytes.Equal(again, got) {
			t.Errorf("%s became %s, %v", got, again, err)
		}
	}
	if _, _, err := Hide([]byte(strings.Replace(line, "lab-a", "lab-b", 1)), nil); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	if _, _, err := Hide([]byte("{}"), nil); !errors.Is(err, ErrForm) {
		t.Error(err)
	}
}

// TestEarlierVersions: lines of version 2 have no salts, so nothing is erased in them.
func TestEarlierVersions(t *testing.T) {
	b, hash := AppendLink([]byte(`{"time":"x","client":"a","v":2`), 0, 1, Hash{})
	l, erased, err := readLink(bytes.TrimSuffix(b, []byte("\n")))
	if err != nil || l.Hash != hash || erased != 0 {
		t.Errorf("%+v, %d, %v", l, erased, err)
	}
	if line, n, err := Hide(bytes.TrimSuffix(b, []byte("\n")), func(string, []byte) bool { return true }); err != nil || n != 0 || string(line)+"\n" != string(b) {
		t.Errorf("%s, %d, %v", line, n, err)
	}
}

// FuzzHide: what is hidden in any line has the same hash.
func FuzzHide(f *testing.F) {
	f.Add("lab-a", "https://a.test/p", "Bot/1")
	f.Add(`\"`, "a.test:443", `\\"`)
	f.Fuzz(func(t *testing.T, client, url, agent string) {
		var members string
		for name, value := range map[string]string{"client": client, "url": url, "user_agent": agent} {
			text, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			members += fmt.Sprintf(`,"%s":%s`, name, text)
		}
		line, hash := saltedLine(members)
		if l, err := ReadLink([]byte(line)); err != nil || l.Hash != hash {
			t.Errorf("%q: %+v, %v", line, l, err)
		}
		got, _, err := Hide([]byte(line), func(string, []byte) bool { return true })
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if l, err := ReadLink(got); err != nil || l.Hash != hash {
			t.Errorf("%q became %q: %+v, %v", line, got, l, err)
		}
	})
}

// FuzzReadSalts: no line makes the reader panic, and what it accepts has the hash of its bytes.
func FuzzReadSalts(f *testing.F) {
	line, _ := saltedLine(salted1)
	f.Add(line)
	f.Fuzz(func(t *testing.T, line string) {
		if l, err := ReadLink([]byte(line)); err == nil && l.Seq == 0 {
			t.Errorf("%q: %+v", line, l)
		}
		Hide([]byte(line), func(string, []byte) bool { return true })
	})
}
