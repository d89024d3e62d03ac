package cli

import (
	"bytes"
	"encoding/json"
	"io"

	"robotsproxy/policy/audit"
)

// jsonLines writes one JSON object a line. It must not be shared by goroutines.
type jsonLines struct {
	out  io.Writer
	line bytes.Buffer

	// encoder writes to line.
	encoder *json.Encoder
}

// NewJSONLines writes to out.
func NewJSONLines(out io.Writer) *jsonLines {
	j := &jsonLines{out: out}
	j.encoder = json.NewEncoder(&j.line)
	// Rules and addresses often contain "&".
	j.encoder.SetEscapeHTML(false)
	return j
}

// Write writes v as one line.
func (j *jsonLines) Write(v any) error {
	j.line.Reset()
	if err := j.encoder.Encode(v); err != nil {
		return err
	}
	_, err := j.out.Write(audit.EscapeJSON(j.line.Bytes()))
	return err
}
