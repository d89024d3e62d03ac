package cli

import (
	"bytes"
	"encoding/json"
	"io"

	"robotsproxy/policy/audit"
)

// jsonLines writes one JSON object a line. Not for several goroutines.
type jsonLines struct {
	out     io.Writer
	line    bytes.Buffer
	encoder *json.Encoder // into line
}

func NewJSONLines(out io.Writer) *jsonLines {
	j := &jsonLines{out: out}
	j.encoder = json.NewEncoder(&j.line)
	j.encoder.SetEscapeHTML(false) // rules and addresses are full of "&"
	return j
}

func (j *jsonLines) Write(v any) error {
	j.line.Reset()
	if err := j.encoder.Encode(v); err != nil {
		return err
	}
	_, err := j.out.Write(audit.EscapeJSON(j.line.Bytes()))
	return err
}
