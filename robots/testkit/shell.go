package testkit

import "strings"

// ShellComment returns the first comment in a script of a shell, "" if it has none. It does not know
// here-documents. An interactive zsh takes the words of a comment as arguments, or as a command.
func ShellComment(script string) string {
	// quote is the quotation mark that is open; 0: none is.
	var quote rune
	// word says that the character before is part of a word.
	word := false
	escaped := false
	for i, r := range script {
		switch {
		case escaped:
			escaped, word = false, true
		case r == '\\' && quote != '\'':
			escaped = true
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote, word = r, true
		case r == '#' && !word:
			comment, _, _ := strings.Cut(script[i:], "\n")
			return comment
		default:
			word = !strings.ContainsRune(" \t\n;&|()", r)
		}
	}
	return ""
}
