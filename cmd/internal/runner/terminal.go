package runner

import (
	"io"
	"os"

	"golang.org/x/term"

	"robotsproxy/cmd/internal/cli"
)

// defaultWidth is the width in columns of a terminal that does not report one.
const defaultWidth = 80

// A terminal is a screen that the command writes to as well.
type terminal struct{ file *os.File }

// openTerminal returns w as a terminal, nil if it is none or cannot move its cursor.
func openTerminal(w io.Writer) screen {
	f, ok := w.(*os.File)
	if !ok || !cli.IsTerminal(w) || os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == "" {
		return nil
	}
	return &terminal{f}
}

// Width asks each time, because the window may have been resized.
func (t *terminal) Width() int {
	width, _, err := term.GetSize(int(t.file.Fd()))
	if err != nil || width <= 0 {
		return defaultWidth
	}
	return width
}

// Dim reports whether the terminal shows text attributes (no-color.org).
func (t *terminal) Dim() bool { return cli.SupportsColour(t.file) }
