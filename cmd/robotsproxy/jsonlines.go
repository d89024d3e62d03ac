package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonLines writes one JSON object a line. Not for several goroutines.
type jsonLines struct {
	out     io.Writer
	line    bytes.Buffer
	encoder *json.Encoder // into line
}

func newJSONLines(out io.Writer) *jsonLines {
	j := &jsonLines{out: out}
	j.encoder = json.NewEncoder(&j.line)
	j.encoder.SetEscapeHTML(false) // rules and addresses are full of "&"
	return j
}

func (j *jsonLines) write(v any) error {
	j.line.Reset()
	if err := j.encoder.Encode(v); err != nil {
		return err
	}
	line := j.line.Bytes()
	if slices.ContainsFunc(line, func(c byte) bool { return c >= 0x7F }) {
		line = escapeUnprintable(line)
	}
	_, err := j.out.Write(line)
	return err
}

// escapeUnprintable escapes in a line of JSON what a terminal would not print
// as it stands, which encoding/json lets pass.
func escapeUnprintable(line []byte) []byte {
	out := make([]byte, 0, 2*len(line))
	for _, r := range string(line) {
		if r == '\n' || unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, "\\u%04x", unit)
		}
	}
	return out
}
