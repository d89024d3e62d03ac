package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Word gives a stranger's string as it is where it is one plain word, else quoted and
// harmless. It is no longer than people read.
func Word(s string) string {
	s = Clip(s)
	if strings.Contains(s, " ") {
		return strconv.Quote(s)
	}
	return Printable(s)
}

// ReplaceFile puts a whole file in the place of name, or leaves what is there. It is
// open to its owner alone: a report names clients, a key makes their hashes.
func ReplaceFile(name string, write func(io.Writer) error) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file", name)
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*") // mode 0600
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name()) // best effort: the error is what counts
	}
	return err
}

// MaxWords is how many bytes of a text of a file's own are shown to people.
const MaxWords = 300

// Clip keeps a stranger's text from filling the screen.
func Clip(s string) string {
	if len(s) <= MaxWords {
		return s
	}
	end := MaxWords
	for end > MaxWords-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}

// Colourful reports whether w is a terminal that wants colours (no-color.org).
func Colourful(w io.Writer) bool {
	return IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// IsTerminal reports whether w is one.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	return term.IsTerminal(int(f.Fd()))
}

// OneOf is a choice in words.
func OneOf(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// Harmless escapes what could move the cursor or hide a part of a line; a
// stranger's string may have got into a message.
func Harmless(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRune(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// Printable gives a stranger's string as it is where it is harmless, else quoted.
func Printable(s string) string {
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}

func Count(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
