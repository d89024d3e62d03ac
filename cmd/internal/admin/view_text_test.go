package admin

import "testing"

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain / ü 漢字\t": "plain / ü 漢字\t", "a\u202Eb": `a\u202eb`, "\x00\x1b\n": `\u0000\u001b\u000a`, "a\xffb": `a\xffb`, "\uFFFD": `\ufffd`, "\U000E0041": `\ue0041`,
	} {
		if got := printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
