package robots

import (
	"slices"
	"strings"
)

// Limits of ProductTokens.
const (
	// maxHeader is how many bytes of a header are parsed.
	maxHeader = 1 << 10
	// maxTokens is how many tokens are returned.
	maxTokens = 16
)

// ProductTokens returns the product tokens by which a User-Agent header may name its client, the
// most significant first (RFC 9110 10.1.5), and nil for the header of a browser. It skips URLs,
// e-mail addresses, versions, the words that the headers of all browsers have, and what a
// browser says about its platform. A number is a name only at the beginning of the header.
func ProductTokens(userAgent string) []string {
	if len(userAgent) > maxHeader {
		// The limit may have cut the last word.
		userAgent = userAgent[:maxHeader]
		userAgent = userAgent[:strings.LastIndexByte(userAgent, ' ')+1]
	}
	var tokens []string
	if number := leadingName(userAgent); isNumeral(number) {
		// Some files name the crawler that sends "008/0.83".
		tokens = append(tokens, number)
	}
	for userAgent != "" && len(tokens) < maxTokens {
		var products, comment string
		products, userAgent, _ = strings.Cut(userAgent, "(")
		comment, userAgent = cutComment(userAgent)
		tokens = addWords(tokens, products)
		tokens = addComment(tokens, comment)
	}
	return tokens
}

// cutComment cuts s after the parenthesis that closes the comment in which s begins. Comments
// nest (RFC 9110 5.6.5).
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

// addComment appends the product tokens among the words of a comment. A browser's comment on its
// platform names devices, which no list can cover: from such a comment addComment takes only
// words that are written as a product ("FooBot/1.0").
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

// isPlatform reports whether a comment is a browser's comment on its platform. The comment of a
// robot that calls itself "compatible" with browsers is not.
func isPlatform(comment string) bool {
	found := false
	for item := range strings.SplitSeq(comment, ";") {
		first := leadingName(strings.TrimSpace(item))
		if strings.EqualFold(first, "compatible") {
			return false
		}
		found = found || platforms[strings.ToLower(first)]
	}
	return found
}

// addWords appends the product tokens among the words of s that tokens lacks.
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

// productToken returns the product token in a word of a header, or "".
func productToken(raw string) string {
	if raw[0] == '+' || strings.Contains(raw, "://") || strings.Contains(raw, "@") {
		// This is a URL or an e-mail address of the client's owner.
		return ""
	}
	token := leadingName(raw)
	version, found := strings.CutPrefix(raw[len(token):], "/")
	if found && strings.Contains(token, ".") && !startsVersion(version) {
		// This is a URL without its scheme.
		return ""
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

// isNameLetter reports whether r makes a word a name rather than a number.
func isNameLetter(r rune) bool { return r >= 0x80 || isLetter(byte(r)) }

// isNumeral reports whether s is one or more digits.
func isNumeral(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func startsVersion(s string) bool {
	s = strings.TrimPrefix(s, "v")
	return s != "" && isDigit(s[0])
}

func isVersion(s string) bool {
	return startsVersion(s) && strings.TrimLeft(s, "v0123456789._-") == ""
}

// trimVersion drops a version that a hyphen or an underscore joins to a name, as in
// "Nutch-1.19". A version has a point: "lab-bot-2" is a name.
func trimVersion(s string) string {
	at := strings.LastIndexAny(s, "-_")
	if at > 0 && isVersion(s[at+1:]) && strings.Contains(s[at+1:], ".") {
		return s[:at]
	}
	return s
}

// leadingName returns the name at the beginning of s: letters, digits, "-", "_", "." and bytes
// over 0x7F. Real names have all of these; RFC 9309 2.2.1 allows only letters, "-" and "_".
func leadingName(s string) string {
	i := 0
	for i < len(s) && (isTokenByte(s[i]) || isDigit(s[i]) || s[i] == '.' || s[i] >= 0x80) {
		i++
	}
	return s[:i]
}

// leadingLetters returns the part of a name that RFC 9309 2.2.1 allows in a product token.
func leadingLetters(s string) string {
	i := 0
	for i < len(s) && isTokenByte(s[i]) {
		i++
	}
	return s[:i]
}

func isTokenByte(c byte) bool { return isLetter(c) || c == '-' || c == '_' }

// platforms are the words that identify a browser's comment on its platform.
var platforms = wordSet(`
	windows macintosh x11 linux android iphone ipad ipod cros wayland
	freebsd openbsd netbsd sunos tizen kaios web0s webos playstation nintendo xbox`)

// commonWords are no names of clients: the headers of all browsers have them, and robots send
// them too in order to pass for a browser.
var commonWords = wordSet(`
	mozilla compatible applewebkit khtml like gecko version mobile tablet build wv rv
	chrome chromium crios safari firefox fxios minefield iceweasel seamonkey
	edge edg edga edgios msie iemobile trident opera opr opios presto vivaldi yabrowser
	samsungbrowser ucbrowser miuibrowser silk konqueror epiphany webkit yahoo
	windows nt win32 win64 wow64 x64 x86 x86_64 i386 i586 i686 amd64 arm arm64 aarch64
	macintosh intel ppc mac os darwin x11 linux ubuntu debian fedora android
	iphone ipad ipod cpu cros wayland freebsd openbsd netbsd sunos tizen kaios web0s webos
	playstation nintendo xbox`)

func wordSet(words string) map[string]bool {
	set := make(map[string]bool)
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
}
