package robots

import (
	"slices"
	"strings"
)

// Ceilings of ProductTokens.
const (
	maxHeader = 1 << 10 // octets of a header that are read
	maxTokens = 16      // tokens that are given
)

// ProductTokens gives the product tokens that a User-Agent header may stand
// for, the most significant first (RFC 9110 10.1.5), and nil for a browser's
// own header. URLs, e-mail addresses, versions, the words that browsers and
// their grammar are made of, and what a browser says of its platform are none.
func ProductTokens(userAgent string) []string {
	if len(userAgent) > maxHeader {
		// The last word may have been cut: it is nobody's name.
		userAgent = userAgent[:maxHeader]
		userAgent = userAgent[:strings.LastIndexByte(userAgent, ' ')+1]
	}
	var tokens []string
	for userAgent != "" && len(tokens) < maxTokens {
		var products, comment string
		products, userAgent, _ = strings.Cut(userAgent, "(")
		comment, userAgent = cutComment(userAgent)
		tokens = addWords(tokens, products)
		tokens = addComment(tokens, comment)
	}
	return tokens
}

// cutComment cuts s after the parenthesis that closes the comment it begins
// in; comments nest (RFC 9110 5.6.5).
func cutComment(s string) (comment, rest string) {
	open := 1
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '(':
			open++
		case ')':
			if open--; open == 0 {
				return s[:i], s[i+1:]
			}
		}
	}
	return s, ""
}

// addComment appends the product tokens among the words of a comment. A
// browser's comment on its platform names devices, which nobody can list: only
// what is written there as a product ("FooBot/1.0") is taken from it.
func addComment(tokens []string, comment string) []string {
	platform := isPlatform(comment)
	for item := range strings.SplitSeq(comment, ";") {
		item = strings.TrimSpace(item)
		if !platform || strings.Contains(item, "/") && !strings.Contains(item, " ") {
			tokens = addWords(tokens, item)
		}
	}
	return tokens
}

// isPlatform reports whether a comment is a browser's on its platform, and
// not that of a robot which calls itself "compatible" with browsers.
func isPlatform(comment string) bool {
	found := false
	for item := range strings.SplitSeq(comment, ";") {
		first := word(strings.TrimSpace(item))
		if strings.EqualFold(first, "compatible") {
			return false
		}
		found = found || platforms[strings.ToLower(first)]
	}
	return found
}

// addWords appends the product tokens among the words of s, each once.
func addWords(tokens []string, s string) []string {
	for raw := range strings.FieldsFuncSeq(s, isDelimiter) {
		token := productToken(raw)
		if token == "" || slices.ContainsFunc(tokens, func(t string) bool { return strings.EqualFold(t, token) }) {
			continue
		}
		if len(tokens) == maxTokens {
			break
		}
		tokens = append(tokens, token)
	}
	return tokens
}

func isDelimiter(r rune) bool {
	return r <= ' ' || strings.ContainsRune(`;,()<>[]{}"'`, r)
}

// productToken gives the token that a word of a header stands for, or "".
func productToken(raw string) string {
	if raw[0] == '+' || strings.Contains(raw, "://") || strings.Contains(raw, "@") {
		return "" // how to reach somebody
	}
	token := word(raw)
	version, found := strings.CutPrefix(raw[len(token):], "/")
	if found && strings.Contains(token, ".") && !startsVersion(version) {
		return "" // an address without its scheme
	}
	if !found {
		token = trimVersion(token)
	}
	token = strings.Trim(token, ".-")
	if !strings.ContainsFunc(token, isNameLetter) || isVersion(token) || commonWords[strings.ToLower(token)] {
		return ""
	}
	return token
}

// isNameLetter reports whether r is what makes a word a name and not a number.
func isNameLetter(r rune) bool { return r >= 0x80 || isLetter(byte(r)) }

func startsVersion(s string) bool {
	s = strings.TrimPrefix(s, "v")
	return s != "" && isDigit(s[0])
}

func isVersion(s string) bool {
	return startsVersion(s) && strings.TrimLeft(s, "v0123456789._-") == ""
}

// trimVersion drops a version that a hyphen or underscore glues to a name:
// "Nutch-1.19". It has a point; "lab-bot-2" is a name.
func trimVersion(s string) string {
	at := strings.LastIndexAny(s, "-_")
	if at > 0 && isVersion(s[at+1:]) && strings.Contains(s[at+1:], ".") {
		return s[:at]
	}
	return s
}

// word gives the name that s begins with: letters, digits, "-", "_" and ".",
// which real names have though RFC 9309 2.2.1 does not, and octets over 0x7F.
func word(s string) string {
	i := 0
	for i < len(s) && (isNameOctet(s[i]) || isDigit(s[i]) || s[i] == '.' || s[i] >= 0x80) {
		i++
	}
	return s[:i]
}

// letters gives the part of a name that RFC 9309 2.2.1 knows.
func letters(s string) string {
	i := 0
	for i < len(s) && isNameOctet(s[i]) {
		i++
	}
	return s[:i]
}

func isNameOctet(c byte) bool { return isLetter(c) || c == '-' || c == '_' }
