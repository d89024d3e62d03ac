package confine

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"
)

// TestOrdersAreReadWhole: a stage that closes its end, as the command's first instruction does, has read all of the
// order, whatever its length. Else Run would get ECONNRESET in place of the end of the stream, and end the command.
func TestOrdersAreReadWhole(t *testing.T) {
	for length := range 4 << 10 {
		c := new(Confinement)
		f, err := c.connect()
		testkit.Must(t, err)
		testkit.Must(t, sendMessage(c.control, setup{}))
		testkit.Must(t, sendMessage(c.control, order{Path: strings.Repeat("x", length)}))
		in := json.NewDecoder(f)
		testkit.Must(t, errors.Join(in.Decode(new(setup)), in.Decode(new(order))))
		f.Close()
		if _, err := c.control.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%d bytes: %v", length, err)
		}
		c.control.Close()
	}
}
