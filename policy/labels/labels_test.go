package labels

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseLabels(t *testing.T) {
	long := strings.Repeat("a", maxLabel-2)
	var nine []string
	for i := range Max + 1 {
		nine = append(nine, fmt.Sprintf("k%d=v", i))
	}
	for _, c := range []struct {
		texts []string
		want  Set
		err   string
	}{
		{nil, "", ""},
		{[]string{"job=news"}, "job=news", ""},
		{[]string{"team=a", "job=news,Z.9_-=x"}, "Z.9_-=x,job=news,team=a", ""},
		{[]string{" job=news ,\tteam=a"}, "job=news,team=a", ""},
		{[]string{"job=news", "job=news"}, "job=news", ""},
		{[]string{long + "=b"}, Set(long + "=b"), ""},
		{nine[:Max], Set(strings.Join(nine[:Max], ",")), ""},
		{nine, "", "9 labels, at most 8 are allowed"},
		{[]string{"job=a", "job=b"}, "", "the label job has two values"},
		{[]string{""}, "", `"" is not KEY=VALUE`},
		{[]string{"job"}, "", `"job" is not KEY=VALUE`},
		{[]string{"=a"}, "", `"=a" is not KEY=VALUE`},
		{[]string{"job="}, "", `"job=" is not KEY=VALUE`},
		{[]string{"job=a=b"}, "", `"job=a=b" is not KEY=VALUE`},
		{[]string{"job=é"}, "", "is not KEY=VALUE"},
		{[]string{"job=a b"}, "", "is not KEY=VALUE"},
		{[]string{long + "a=b"}, "", "is not KEY=VALUE"},
		{[]string{"job=news,"}, "", `"" is not KEY=VALUE`},
	} {
		got, err := Parse(c.texts...)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %q, %v; want %q, %s", c.texts, got, err, c.want, c.err)
		}
	}
}

func TestLabels(t *testing.T) {
	for _, c := range []struct{ one, more, want Set }{
		{"", "", ""}, {"a=1", "", "a=1"}, {"", "a=1", "a=1"}, {"b=2", "a=1,c=3", "a=1,b=2,c=3"},
		// The first ones count.
		{"a=1", "a=2,b=2", "a=1,b=2"},
	} {
		if got, err := c.one.With(c.more); got != c.want || err != nil {
			t.Errorf("%q with %q: %q, %v", c.one, c.more, got, err)
		}
	}
	if _, err := Set("a=1,b=1,c=1,d=1,e=1").With("f=1,g=1,h=1,i=1"); err == nil {
		t.Error("nine labels are taken")
	}
	const l Set = "job=news,team=a"
	for want, has := range map[Set]bool{"": true, "job=news": true, "team=a,job=news": true, "team=b": false, "job=new": false, "ob=news": false} {
		if l.Has(want) != has {
			t.Errorf("%q has %q: %v", l, want, !has)
		}
	}
}
