package cli

import (
	"errors"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	var b strings.Builder
	Report(&b, errors.New("one\ntwo \x1b[2J \u202e \"ü\"\r"))
	if want := "robotsproxy: one\nrobotsproxy: two \\x1b[2J \\u202e \"ü\"\\r\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
