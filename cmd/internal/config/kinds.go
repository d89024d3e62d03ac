package config

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"robotsproxy/robots"
)

// kind is a kind of value: its name in messages, and how it is read.
type kind struct {
	// what completes "must be …": "a duration".
	what string

	// example is a value as in a file; "": the key's default.
	example string

	// names are the only values; nil: the other fields say which there are.
	names []string

	// is reports whether a text is of the kind. A kind without it has values that are not text, which parse reads.
	is    func(string) bool
	parse func(string) (any, bool)

	// optional says that "" is a value too.
	optional bool

	// bare says that the values are numbers or booleans, which have no quotes in YAML.
	bare bool

	// sized says that a number needs a unit of bytes.
	sized bool

	// secret says that the value may hold a password, so that messages do not repeat it.
	secret bool

	// hint returns a more exact message, which replaces the example, or ""; it may be nil.
	hint func(text string) string

	// pattern is for the schema, in the syntax that RE2 and ECMAScript share: it matches all texts of the kind, except the
	// "" of optional, and perhaps others; "": it matches everything.
	pattern string

	// number is for the schema: the numbers that are values although the kind is not bare; nil: none.
	number *bounds
}

// bounds are the least and the greatest of some numbers.
type bounds struct{ least, most float64 }

// read reads text. It returns false if text is not of the kind.
func (k kind) read(text string) (any, bool) {
	if k.is == nil {
		return k.parse(text)
	}
	return text, k.is(text) || k.optional && text == ""
}

// text reports whether the values are free text, so that a number without quotes is a mistake.
func (k kind) text() bool { return k.is != nil && k.names == nil }

// readText reads text. If text is not of the kind, why is the whole message, which shows it as shown.
func (k kind) readText(text, shown string) (value any, why string) {
	value, ok := k.read(text)
	if ok {
		return value, ""
	}
	if why = k.hinted(text, shown); why != "" {
		return nil, why
	}
	why = k.wanted()
	if !k.secret {
		why += ", got " + shown
	}
	return nil, why
}

// wanted returns what a value must be.
func (k kind) wanted() string {
	if k.names != nil {
		return "must be " + k.what
	}
	return "must be " + k.what + " (example: " + k.example + ")"
}

// hinted returns the message about text with the hint of the kind, "" if it has none.
func (k kind) hinted(text, shown string) string {
	if _, isNumber := readFloat(text); k.sized && isNumber {
		return k.shown(shown) + " has no unit (example: " + k.example + ")"
	}
	if k.hint != nil {
		if h := k.hint(text); h != "" {
			return k.shown(shown) + " " + h
		}
	}
	return ""
}

// shown returns text as a message may show it.
func (k kind) shown(text string) string {
	if k.secret {
		return "the value"
	}
	return text
}

// oneOf returns the kind whose only values are these names.
func oneOf(names []string) kind {
	return kind{
		what: "one of " + strings.Join(names, ", "), example: names[0], names: names,
		is: func(s string) bool { return slices.Contains(names, s) },
	}
}

// DialectNames returns the names of the dialects of robots.txt, the default first.
func DialectNames() (names []string) {
	for _, d := range robots.Dialects() {
		names = append(names, d.Name)
	}
	return names
}

// kinds holds each kind under its Go type, or under the name in the kind tag of a field. A field with a oneof tag has its
// own kind, which is not here.
var kinds = map[string]kind{
	"bool":    {what: "true or false", example: "true", bare: true, parse: readBool},
	"int":     {what: "a whole number", example: "10", bare: true, parse: reading(strconv.Atoi)},
	"float64": {what: "a number", example: "0.5", bare: true, parse: readFloat},

	"time.Duration": {what: "a duration", example: "60s",
		parse: reading(time.ParseDuration), hint: unitless, pattern: `^(` + duration + `|0)$`, number: &bounds{}},
	"config.Wait": {what: "auto or a positive duration", example: "auto or 60s",
		parse: readWait, hint: unitless, pattern: `^(auto|` + duration + `)$`},
	"netip.Prefix": {what: "a network", example: "10.0.0.0/8",
		parse: readPrefix, hint: hostBits, pattern: `^[0-9A-Fa-f:.]+/[0-9]+$`},
	"time.Time": {what: "a day or a time", example: "2027-01-31 or 2027-01-31T18:00:00Z",
		parse: readTime, pattern: `^([0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:.,]+(Z|[+-][0-9:]+))?)?$`},
	"config.Size": {what: "a size",
		parse: readSize, sized: true, hint: thousands, pattern: `^(` + size + `|0)$`, number: &bounds{}},
	"config.AutoSize": {what: "auto or a size", example: "auto or 1GiB",
		parse: readAutoSize, sized: true, hint: thousands, pattern: `^(auto|` + size + `|0)$`, number: &bounds{}},
	"config.PortRange": {what: "a port or a range of ports", example: "443 or 1024-65535",
		parse: readPorts, pattern: `^[0-9]+(-[0-9]+)?$`, number: &bounds{1, 65535}},

	"config.Status": {what: "an HTTP status from 400 to 599", example: "403",
		parse: readStatus, pattern: `^[45][0-9][0-9]$`, number: &bounds{400, 599}},

	"path":           {what: "a path", example: "/etc/robotsproxy/ca.pem", is: anyText},
	"path-or-stdout": {what: "a path, or - for standard output", example: "/var/log/audit.jsonl", is: anyText},
	"address": {what: "an address to listen on", example: "127.0.0.1:8080",
		is: isAddress, hint: AddressHint, pattern: `:[0-9]+$`},
	"address-or-off": {what: "an address to listen on", example: `127.0.0.1:8081, or "" for none`,
		is: isAddress, optional: true, hint: AddressHint, pattern: `^$|:[0-9]+$`},
	"server": {what: "the host:port of a server", example: "192.0.2.53:53",
		is: isServer, optional: true, hint: serverHint, pattern: `^$|.:[0-9]+$`},
	"parent":      parentKind(ParentEnv),
	"host-parent": parentKind(ParentDirect),
	"tsa": {what: "the URL of a time-stamp authority", example: "https://tsa.example/tsr",
		is: isWebURL, optional: true, pattern: `^$|^https?://.`},
	"dashboard": {what: "the URL of a dashboard", example: "https://proxy-1.example:8081",
		is: isWebURL, optional: true, pattern: `^$|^https?://.`},
	"directory": {what: "the https:// URL of a key directory, in ASCII",
		example: "https://bot.example/.well-known/http-message-signatures-directory", is: isDirectory, optional: true,
		pattern: `^$|^https://[!-~]+$`},
	"redis": {what: "the URL of a Redis server", example: "redis://:password@redis.example:6379/0",
		is: isRedis, optional: true, secret: true, hint: notRedis, pattern: `^$|^(rediss?|unix)://.`},
	"replica": {what: "a name of 1 to 64 visible ASCII characters", example: "proxy-1",
		is: isReplica, pattern: `^[!-~]{0,64}$`},
	"origin": {what: "a name of 1 to 200 visible ASCII characters without +", example: "example.org/crawls",
		is: isOrigin, optional: true, pattern: `^[!-*,-~]{0,200}$`},
	"file-prefix": {what: "1 to 64 letters, digits and ._-, with a letter or digit first", example: "news-2026",
		is: isFilePrefix, pattern: filePrefix.String()},
	"pattern": {what: "a host pattern", example: "example.com, *.example.com or *",
		is: isPattern, pattern: `^(\*|(\*\.)?[^*/\s]+)$`},
	"pattern-or-none": {what: "a host pattern", example: "example.com, *.example.com or *",
		is: isPattern, optional: true, pattern: `^(\*|(\*\.)?[^*/\s]+)?$`},
	"robots-pattern": {what: "a pattern of a path, which begins with / and has no spaces and no #", example: "/api/export$",
		is: isPathPattern, pattern: pathPattern.String()},
	"hours": {what: "days, times or both, which a time zone may follow, or robots", example: `"Mon-Fri 22:00-05:00 Europe/Berlin"`,
		is: isHours, pattern: `^[A-Za-z0-9:,/_+ -]+$`},
	"token":   {what: "a product token", example: "FooBot", is: isToken, optional: true, pattern: "^$|" + productToken.String()},
	"dialect": oneOf(DialectNames()),
	"purpose": {what: "one of train-ai, ai-input, search, tdm", example: "train-ai",
		is: isPurpose, pattern: `^(train-ai|ai-input|search|tdm)$`},
	"label": {what: "KEY=VALUE, of letters, digits and ._-, with at most 64 characters", example: "job=news",
		is: isLabel, pattern: `^[A-Za-z0-9._-]{1,62}=[A-Za-z0-9._-]{1,62}$`},
	"name": {what: "a name of letters, digits, spaces and ._@-", example: "lab-a",
		is: isName, optional: true, pattern: "^$|" + namePattern},
	"bcrypt": {what: "a bcrypt hash", example: `"$2y$10$…", as robotsproxy password prints it`,
		is: isBcrypt, optional: true, secret: true, hint: notQuiteBcrypt, pattern: "^$|" + bcryptHash.String()},
	"secret": {what: "a secret of 16 to 256 letters, digits and -._~+/=", example: "the output of openssl rand -hex 24",
		is: isSecret, optional: true, secret: true, pattern: "^$|" + secret.String()},
	"line": {what: "a line of text", example: `"permitted by the site's owner, ticket 1234"`, is: isLine, pattern: oneLine},
	"email": {what: "an e-mail address", example: "bot@foo.example",
		is: isEmail, optional: true, pattern: `^$|^("[ -~]+"|[!-;=?-~]+)@[!-;=?-~]+$`},
	"header": {what: "the value of a header", example: "FooBot/1.0 (+https://foo.example)", is: isHeader, pattern: oneLine},
}

func anyText(string) bool { return true }

// These are parts of patterns.
const (
	duration = `\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+`
	size     = `[0-9]+ *([KMGT]i)?B`
	oneLine  = `^[^\x00-\x1f\x7f]*$`
)

// maxShown bounds a text of the file in a message, in characters.
const maxShown = 60

// quoted returns a text of the file in quotes, on one line, cut after maxShown characters.
func quoted(s string) string { return strconv.Quote(cut(s)) }

// printable replaces what is not printable in s.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

func cut(s string) string {
	if runes := []rune(s); len(runes) > maxShown {
		return string(runes[:maxShown]) + "…"
	}
	return s
}
