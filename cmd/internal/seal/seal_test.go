package seal

import (
	"bytes"
	"testing"
	"time"
)

func TestValue(t *testing.T) {
	now := time.Now()
	for _, text := range []string{"", "x", "some text\x00"} {
		v := New("key", []byte(text), now.Add(time.Minute))
		if !v.IsWhole("key") || v.IsWhole("other") || v.Until() != now.Add(time.Minute).Unix() {
			t.Errorf("%q: %x", text, v)
		}
		if got := v.Current(now); got == nil || string(got) != text || len(v) != Bytes+len(text) {
			t.Errorf("%q is sealed as %x, which has %q", text, v, got)
		}
		if got := v.Current(now.Add(time.Minute)); got != nil {
			t.Errorf("%q: %q at its expiry", text, got)
		}
		for i := range 8 * len(v) {
			changed := bytes.Clone(v)
			changed[i/8] ^= 1 << (i % 8)
			if Value(changed).IsWhole("key") {
				t.Errorf("%q: bit %d may change", text, i)
			}
		}
		for n := range len(v) {
			if v[:n].IsWhole("key") {
				t.Errorf("%q: %d bytes are whole", text, n)
			}
		}
	}
	if got := Value(nil).Current(now); got != nil {
		t.Errorf("nil has %q", got)
	}
}
