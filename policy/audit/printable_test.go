package audit

import (
	"encoding/json"
	"testing"
)

func TestEscapeJSON(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"what is plain", `{"a":"b&<>\n"}`, `{"a":"b&<>\n"}`},
		{"letters of any script", `{"a":"Grüße, 世界, 😀"}`, `{"a":"Grüße, 世界, 😀"}`},
		{"a terminal's commands (C1)", "\"\u009b31m\"", `"\u009b31m"`},
		{"what deletes", "\"\x7f\"", `"\u007f"`},
		{"what turns text around", "\"\u202etxt.exe\"", `"\u202etxt.exe"`},
		{"what has no width", "\"\u200b\ufeff\"", `"\u200b\ufeff"`},
		{"beyond 16 bits", "\"\U000e0001\"", `"\udb40\udc01"`},
		{"the end of a line", "{}\n", "{}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := EscapeJSON([]byte(c.text))
			if string(got) != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			var before, after any
			if json.Unmarshal([]byte(c.text), &before) != nil || json.Unmarshal(got, &after) != nil {
				t.Fatal("it is no JSON")
			}
			if a, b := before, after; c.text[0] == '"' && a != b {
				t.Errorf("it means %q, and meant %q", b, a)
			}
		})
	}
}
