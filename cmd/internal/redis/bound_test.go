package redis

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// TestReplyCounter: a reply may be as large as was asked for, wherever the connection divides it.
func TestReplyCounter(t *testing.T) {
	t.Parallel()
	const most = 1000
	long, longer := strings.Repeat("x", most-len("$980")), strings.Repeat("x", most)
	for _, c := range []struct {
		name, stream string
		want         error
	}{
		{"one of each type", "+OK\r\n-ERR x\r\n:1\r\n_\r\n,1.5\r\n#t\r\n(123\r\n$1\r\nx\r\n$0\r\n\r\n!5\r\nERR x\r\n=5\r\ntxt:x\r\n*0\r\n~1\r\n:1\r\n>1\r\n:1\r\n%1\r\n:1\r\n:2\r\n", nil},
		{"nothing", "$-1\r\n*-1\r\n+OK\r\n", nil},
		{"line breaks in a string", "$6\r\n*9999\r\r\n+OK\r\n", nil},
		{"a string as large as may be", fmt.Sprintf("$%d\r\n%s\r\n", len(long), long), nil},
		{"many such strings", strings.Repeat(fmt.Sprintf("$%d\r\n%s\r\n", len(long), long), 9), nil},
		{"arrays in arrays", strings.Repeat("*2\r\n*1\r\n$1\r\nx\r\n%1\r\n+x\r\n*0\r\n", 100), nil},
		{"a string that is too large", fmt.Sprintf("$%d\r\n%s\r\n", len(longer), longer), errTooMuch},
		{"the length of one", "$1000\r\n", errTooMuch},
		{"the length of one in an array", "*2\r\n$500\r\n" + long[:500] + "\r\n$500\r\n", errTooMuch},
		{"a length of exabytes", "$9223372036854775807\r\n", errTooMuch},
		{"many elements", "*100\r\n", errTooMuch},
		{"pairs of exabytes", "%9223372036854775807\r\n", errTooMuch},
		{"arrays that begin with arrays", strings.Repeat("*20\r\n", 3), errTooMuch},
		{"arrays too deep", strings.Repeat("*1\r\n", maxDepth+1), errTooMuch},
		{"a line without an end", "+" + strings.Repeat("x", maxLine), errTooMuch},
		{"HTTP", "HTTP/1.1 400 Bad Request\r\n", errReply},
		{"an empty line", "\r\n", errReply},
		{"a length that is no number", "$?\r\n", errReply},
	} {
		for _, part := range []int{1, 7, len(c.stream)} {
			var r replyCounter
			var err error
			for rest := []byte(c.stream); len(rest) > 0 && err == nil; {
				n := min(part, len(rest))
				err = r.add(rest[:n], most)
				rest = rest[n:]
			}
			if !errors.Is(err, c.want) || c.want == nil && len(r.open)+len(r.line)+r.skip > 0 {
				t.Errorf("%s, in parts of %d: %v, want %v; %+v", c.name, part, err, c.want, r)
			}
		}
	}
}

// TestLargestEntry: the largest entry comes back. A value that is even larger counts as none, and
// sends no replica into pacing alone.
func TestLargestEntry(t *testing.T) {
	t.Parallel()
	url := mini(t)
	settled(t, url)
	one, two := run(t, url, 2), run(t, url, 2)
	together(t, one, two)
	saving, loading := one.Robots(nil), two.Robots(nil)
	entry := bytes.Repeat([]byte("x"), maxEntry)
	saving.Save(fileOf(1), entry, time.Now().Add(time.Hour), "")
	testkit.Eventually(t, "it is loaded", func() bool {
		got, err := loading.Load(t.Context(), fileOf(1))
		return bytes.Equal(got, entry) && err == nil
	})
	testkit.Must(t, client(t, url).Append(t.Context(), robotsKeys.entry+fileOf(1).String(), "x").Err())
	if got, err := loading.Load(t.Context(), fileOf(1)); got != nil || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if s := two.Stats(); s.StoreAway || s.Outages > 0 {
		t.Errorf("%+v", s)
	}
}
