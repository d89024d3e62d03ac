package snapshot

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// TestReplaceAgents: the User-Agent of one fetch is another one, and the other lines are as they were.
func TestReplaceAgents(t *testing.T) {
	s := open(t, Options{})
	one, two := answer("a.test", "a", 1), answer("b.test", "b", 2)
	one.UserAgent, two.UserAgent = "maria", "bob"
	keep(t, s, one, two)
	path := indexPath(s.o.Dir, time.Now())
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	testkit.Must(t, err)
	_, err = file.WriteString(`{"url":"torn`)
	testkit.Must(t, err)
	testkit.Must(t, file.Close())
	before, err := os.ReadFile(path)
	testkit.Must(t, err)

	replace := func(f *Fetch) string {
		if f.UserAgent == "maria" {
			return "sha256:x"
		}
		return ""
	}
	for range 2 {
		testkit.Must(t, ReplaceAgents(t.Context(), s.o.Dir, replace))
		after, err := os.ReadFile(path)
		testkit.Must(t, err)
		if want := bytes.Replace(before, []byte("maria"), []byte("sha256:x"), 1); !bytes.Equal(after, want) || !strings.Contains(string(after), "bob") {
			t.Errorf("%s\nwant %s", after, want)
		}
	}
	testkit.Must(t, ReplaceAgents(t.Context(), t.TempDir(), replace))
}
