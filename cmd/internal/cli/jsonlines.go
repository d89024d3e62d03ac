package cli

import (
	"bytes"
	"encoding/json"
	"io"

	"robotsproxy/policy/audit"
)

// WriteJSON writes v as one line of JSON.
func WriteJSON(out io.Writer, v any) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	// Rules and addresses often contain "&".
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := out.Write(audit.EscapeJSON(line.Bytes()))
	return err
}
