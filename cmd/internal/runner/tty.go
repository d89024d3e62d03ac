package runner

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"robotsproxy/cmd/internal/cli"
)

// usualWidth is that of a terminal that does not say, in columns.
const usualWidth = 80

// A tty is a terminal that others write to as well.
type tty struct{ file *os.File }

// ttyOf gives the terminal that w is; nil where it is none, or one that cannot
// move its cursor.
func ttyOf(w io.Writer) *tty {
	f, ok := w.(*os.File)
	if !ok || !cli.IsTerminal(w) || os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == "" {
		return nil
	}
	return &tty{f}
}

// Free says whether whoever has the terminal takes whole lines of it, and shows what is
// typed, and is of our own group of processes.
func (t *tty) Free() bool {
	mode, err := unix.IoctlGetTermios(int(t.file.Fd()), getTermios)
	const cooked = unix.ICANON | unix.ECHO
	return err == nil && mode.Lflag&cooked == cooked && inForeground()
}

// Width asks anew each time: the window may have another size by now.
func (t *tty) Width() int {
	width, _, err := term.GetSize(int(t.file.Fd()))
	if err != nil || width <= 0 {
		return usualWidth
	}
	return width
}

// Dim says whether it wants looks (no-color.org).
func (t *tty) Dim() bool { return cli.Colourful(t.file) }
