package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/osfile"
)

// ReplaceFile replaces a regular file atomically, or makes it. Its mode is 0600, because reports name clients and keys make their
// hashes. If write fails, the old file stays.
func ReplaceFile(name string, write func(io.Writer) error) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file", name)
	}
	return osfile.Replace(name, 0o600, write)
}

// CopyBytes copies what clients or origins sent to out, unchanged. On a terminal it escapes characters that are not printable, and
// says so on errOut.
func CopyBytes(out, errOut io.Writer, in io.Reader) error {
	if !IsTerminal(out) {
		_, err := io.Copy(out, in)
		return err
	}
	lines := bufio.NewReaderSize(in, 64<<10)
	escaped := false
	for {
		// If the line is longer than the buffer, this is a part of it.
		line, err := lines.ReadSlice('\n')
		text, ended := strings.CutSuffix(string(line), "\n")
		shown := humanize.Escape(text)
		escaped = escaped || shown != text
		if ended || err == io.EOF && text != "" {
			shown += "\n"
		}
		if _, err := io.WriteString(out, shown); err != nil {
			return err
		}
		if err == io.EOF {
			break
		}
		if err != nil && err != bufio.ErrBufferFull {
			return err
		}
	}
	if escaped {
		fmt.Fprintln(errOut, "robotsproxy: characters that are not printable are escaped on a terminal; "+
			"redirect to a FILE to get the exact bytes")
	}
	return nil
}

// SupportsColour reports whether w is a terminal that shows colours (no-color.org).
func SupportsColour(w io.Writer) bool {
	return IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// OneOf lists the values for a message: a, b or c.
func OneOf(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// ShellQuote quotes s unless a shell reads it as one word.
func ShellQuote(s string) string {
	const plain = "/.-_:=@+0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// ReadFile returns the first limit bytes of a file.
func ReadFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
