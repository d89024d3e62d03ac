package admin

import (
	"testing"
	"time"
)

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain / ü 漢字\t": "plain / ü 漢字\t", "a\u202Eb": `a\u202eb`, "\x00\x1b\n": `\u0000\u001b\u000a`, "a\xffb": `a\xffb`, "\uFFFD": `\ufffd`, "\U000E0041": `\ue0041`,
	} {
		if got := visible(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestLength(t *testing.T) {
	for in, want := range map[time.Duration]string{
		0: "0 s", -time.Second: "0 s", time.Microsecond: "1 ms", 250 * time.Millisecond: "250 ms", 3260 * time.Millisecond: "3.2 s", 9999 * time.Millisecond: "9.9 s",
		12*time.Second + 700*time.Millisecond: "12 s", 80 * time.Second: "1 min 20 s", 12*time.Minute + 5*time.Second: "12 min", 2*time.Hour + 5*time.Minute: "2 h 5 min", 50 * time.Hour: "2 d 2 h",
	} {
		if got := length(in); got != want {
			t.Errorf("%v: %q, want %q", in, got, want)
		}
	}
	if got := count(int64(1234567)); got != "1,234,567" {
		t.Errorf("%q", got)
	}
}
