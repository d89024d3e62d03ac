package config

import (
	"cmp"
	"maps"
	"math"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"robotsproxy/policy/usage"
	"robotsproxy/robots"
)

// kind is a kind of value: its name in messages, and how it is read and written.
type kind struct {
	// "a duration": completes "must be …".
	what string

	// As in a file; "": the key's default.
	example string

	// A number or a boolean, which has no quotes in YAML.
	bare bool

	// text only: a number without quotes is refused.
	text bool

	// May hold a password: messages do not repeat it.
	secret bool

	// A number needs a unit of bytes.
	sized bool

	// false: the text is not of this kind.
	read func(string) (any, bool)

	// A more exact message, which replaces the example; may be nil, and may return "".
	hint func(text string) string

	// The inverse of read.
	write func(any) string

	// For the schema, in the syntax that RE2 and ECMAScript share: matches all texts of the kind, and perhaps others;
	// "": all match.
	pattern string

	// For the schema: the numbers that are values although the kind is not bare; nil: none.
	number *bounds
}

// bounds are the least and the greatest of some numbers.
type bounds struct{ least, most float64 }

// readText reads text. If text is not of the kind, why is the whole message, which shows it as shown.
func (k kind) readText(text, shown string) (value any, why string) {
	value, ok := k.read(text)
	if ok {
		return value, ""
	}
	if why = k.hinted(text, shown); why != "" {
		return nil, why
	}
	shown = k.shown(shown)
	why = "must be " + k.what + " (example: " + k.example + ")"
	if !k.secret {
		why += ", got " + shown
	}
	return nil, why
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

// kinds holds each kind under its Go type, or under the name in the kind tag of a field.
var kinds = map[string]kind{
	"bool":    {what: "true or false", example: "true", bare: true, read: readBool, write: func(v any) string { return strconv.FormatBool(v.(bool)) }},
	"int":     {what: "a whole number", example: "10", bare: true, read: readInt, write: func(v any) string { return strconv.Itoa(v.(int)) }},
	"float64": {what: "a number", example: "0.5", bare: true, read: readFloat, write: func(v any) string { return strconv.FormatFloat(v.(float64), 'g', -1, 64) }},

	"time.Duration":    {what: "a duration", example: "60s", read: readDuration, hint: unitless, write: writeDuration, pattern: `^(` + duration + `|0)$`, number: &bounds{}},
	"config.Wait":      {what: "auto or a positive duration", example: "auto or 60s", read: readWait, hint: unitless, write: writeWait, pattern: `^(auto|` + duration + `)$`},
	"netip.Prefix":     {what: "a network", example: "10.0.0.0/8", read: readPrefix, hint: hostBits, write: func(v any) string { return v.(netip.Prefix).String() }, pattern: `^[0-9A-Fa-f:.]+/[0-9]+$`},
	"time.Time":        {what: "a day or a time", example: "2027-01-31 or 2027-01-31T18:00:00Z", read: readTime, write: writeTime, pattern: `^([0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:.,]+(Z|[+-][0-9:]+))?)?$`},
	"config.Size":      {what: "a size", sized: true, read: readSize, hint: thousands, write: writeSize, pattern: `^(` + size + `|0)$`, number: &bounds{}},
	"config.AutoSize":  {what: "auto or a size", example: "auto or 1GiB", sized: true, read: readAutoSize, hint: thousands, write: writeAutoSize, pattern: `^(auto|` + size + `|0)$`, number: &bounds{}},
	"config.PortRange": {what: "a port or a range of ports", example: "443 or 1024-65535", read: readPorts, write: func(v any) string { return v.(PortRange).String() }, pattern: `^[0-9]+(-[0-9]+)?$`, number: &bounds{1, 65535}},

	"string":          {what: "text", example: `"text"`, text: true, read: func(s string) (any, bool) { return s, true }, write: asText},
	"path":            {what: "a path", example: "/etc/robotsproxy/ca.pem", text: true, read: func(s string) (any, bool) { return s, true }, write: asText},
	"path-or-stdout":  {what: "a path, or - for standard output", example: "/var/log/audit.jsonl", text: true, read: func(s string) (any, bool) { return s, true }, write: asText},
	"address":         {what: "an address to listen on", example: "127.0.0.1:8080", text: true, read: textThat(isAddress), hint: AddressHint, write: asText, pattern: `:[0-9]+$`},
	"address-or-off":  {what: "an address to listen on", example: `127.0.0.1:8081, or "" for none`, text: true, read: textThat(emptyOr(isAddress)), hint: AddressHint, write: asText, pattern: `^$|:[0-9]+$`},
	"server":          {what: "the host:port of a server", example: "192.0.2.53:53", text: true, read: textThat(emptyOr(isServer)), hint: serverHint, write: asText, pattern: `^$|.:[0-9]+$`},
	"parent":          {what: "the address of a proxy, or env", example: "http://proxy.example:3128", text: true, secret: true, read: textThat(emptyOr(isParent)), hint: notParent, write: asText, pattern: `^$|^env$|^(https?|socks5h?)://.`},
	"tsa":             {what: "the URL of a time-stamp authority", example: "https://tsa.example/tsr", text: true, read: textThat(emptyOr(isWebURL)), write: asText, pattern: `^$|^https?://.`},
	"directory":       {what: "the https:// URL of a key directory, in ASCII", example: "https://bot.example/.well-known/http-message-signatures-directory", text: true, read: textThat(emptyOr(isDirectory)), write: asText, pattern: `^$|^https://[!-~]+$`},
	"redis":           {what: "the URL of a Redis server", example: "redis://:password@redis.example:6379/0", text: true, secret: true, read: textThat(emptyOr(isRedis)), hint: notRedis, write: asText, pattern: `^$|^(rediss?|unix)://.`},
	"replica":         {what: "a name of 1 to 64 visible ASCII characters", example: "proxy-1", text: true, read: textThat(emptyOr(isReplica)), write: asText, pattern: `^[!-~]{0,64}$`},
	"file-prefix":     {what: "1 to 64 letters, digits and ._-, with a letter or digit first", example: "news-2026", text: true, read: textThat(isFilePrefix), write: asText, pattern: filePrefix.String()},
	"pattern":         {what: "a host pattern", example: "example.com, *.example.com or *", text: true, read: textThat(isPattern), write: asText, pattern: `^(\*|(\*\.)?[^*/\s]+)$`},
	"pattern-or-none": {what: "a host pattern", example: "example.com, *.example.com or *", text: true, read: textThat(emptyOr(isPattern)), write: asText, pattern: `^(\*|(\*\.)?[^*/\s]+)?$`},
	"token":           {what: "a product token", example: "FooBot", text: true, read: textThat(emptyOr(isToken)), write: asText, pattern: "^$|" + productToken.String()},
	"purpose":         {what: "one of train-ai, ai-input, search, tdm", example: "train-ai", text: true, read: textThat(isPurpose), write: asText, pattern: `^(train-ai|ai-input|search|tdm)$`},
	"name":            {what: "a name of letters, digits, spaces and ._@-", example: "lab-a", text: true, read: textThat(emptyOr(isName)), write: asText, pattern: "^$|" + namePattern},
	"bcrypt":          {what: "a bcrypt hash", example: `"$2y$10$…", as robotsproxy password prints it`, text: true, secret: true, read: textThat(emptyOr(isBcrypt)), hint: notQuiteBcrypt, write: asText, pattern: "^$|" + bcryptHash.String()},
	"secret":          {what: "a secret of 16 to 256 letters, digits and -._~+/=", example: "the output of openssl rand -hex 24", text: true, secret: true, read: textThat(emptyOr(isSecret)), write: asText, pattern: "^$|" + secret.String()},
	"line":            {what: "a line of text", example: `"permitted by the site's owner, ticket 1234"`, text: true, read: textThat(isLine), write: asText, pattern: oneLine},
	"email":           {what: "an e-mail address", example: "bot@foo.example", text: true, read: textThat(emptyOr(isEmail)), write: asText, pattern: `^$|^("[ -~]+"|[!-;=?-~]+)@[!-;=?-~]+$`},
	"header":          {what: "the value of a header", example: "FooBot/1.0 (+https://foo.example)", text: true, read: textThat(emptyOr(isHeader)), write: asText, pattern: oneLine},
}

// Parts of patterns.
const (
	duration = `\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+`
	size     = `[0-9]+ *([KMGT]i)?B`
	oneLine  = `^[^\x00-\x1f\x7f]*$`
)

func asText(v any) string { return v.(string) }

func textThat(is func(string) bool) func(string) (any, bool) {
	return func(s string) (any, bool) { return s, is(s) }
}

func emptyOr(is func(string) bool) func(string) bool {
	return func(s string) bool { return s == "" || is(s) }
}

func readBool(s string) (any, bool) {
	low := strings.ToLower(s)
	return low == "true", low == "true" || low == "false"
}

func readInt(s string) (any, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil
}

func readFloat(s string) (any, bool) {
	x, err := strconv.ParseFloat(s, 64)
	return x, err == nil && !math.IsInf(x, 0) && !math.IsNaN(x)
}

func readDuration(s string) (any, bool) {
	d, err := time.ParseDuration(s)
	return d, err == nil
}

// unitless is the hint for a duration without a unit.
func unitless(s string) string {
	if _, isNumber := readFloat(s); isNumber {
		return "has no unit (example: " + s + "s)"
	}
	return ""
}

// writeDuration formats a duration without trailing zeros: "24h", not "24h0m0s".
func writeDuration(v any) string {
	s := v.(time.Duration).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func readWait(s string) (any, bool) {
	if s == auto {
		return AutoWait, true
	}
	d, err := time.ParseDuration(s)
	return Wait(d), err == nil && d > 0
}

func writeWait(v any) string {
	if w := v.(Wait); w != AutoWait {
		return writeDuration(time.Duration(w))
	}
	return auto
}

// sizeUnits are the units of IEC 80000-13, the largest first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func readSize(s string) (any, bool) {
	if s == "0" {
		return Size(0), true
	}
	for _, u := range sizeUnits {
		if digits, ok := strings.CutSuffix(s, u.name); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
			return Size(int64(n) * u.bytes), err == nil && int64(n) <= math.MaxInt64/u.bytes
		}
	}
	return Size(0), false
}

// thousands is the hint for units of thousands.
func thousands(s string) string {
	if t, ok := strings.CutSuffix(s, "B"); ok && !strings.HasSuffix(t, "i") {
		return "has an unknown unit: use TiB, GiB, MiB, KiB or B"
	}
	return ""
}

// auto is the text of Auto and AutoWait.
const auto = "auto"

func readAutoSize(s string) (any, bool) {
	if s == auto {
		return Auto, true
	}
	n, ok := readSize(s)
	return AutoSize(n.(Size)), ok
}

func writeAutoSize(v any) string {
	if n := v.(AutoSize); n != Auto {
		return writeSize(Size(n))
	}
	return auto
}

func writeSize(v any) string {
	n := int64(v.(Size))
	for _, u := range sizeUnits {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0"
}

func readPrefix(s string) (any, bool) {
	p, err := netip.ParsePrefix(s)
	// An IPv4-mapped network would match nothing: addresses are unmapped before they are matched.
	return p, err == nil && p == p.Masked() && !p.Addr().Is4In6()
}

// hostBits is the hint for a network with host bits, which may mean the network or the host.
func hostBits(s string) string {
	if a, err := netip.ParseAddr(s); err == nil {
		return "is an address, not a network: use " + netip.PrefixFrom(a, a.BitLen()).String()
	}
	if p, err := netip.ParsePrefix(s); err == nil && p != p.Masked() {
		return "has bits set beyond its prefix length: use " + p.Masked().String()
	}
	return ""
}

func readPorts(s string) (any, bool) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	return PortRange{uint16(a), uint16(b)}, errA == nil && errB == nil && a >= 1 && a <= b
}

// isAddress accepts port 0, which is any free port, and no host, which is every interface.
func isAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil && (host == "" || isHost(host))
}

// AddressHint returns what to write in place of a port or a URL, where an address to listen on is
// expected; "" for other texts.
func AddressHint(s string) string {
	if _, err := strconv.ParseUint(s, 10, 16); err == nil {
		return "has no host: use 127.0.0.1:" + s
	}
	if u, err := url.Parse(s); err == nil && u.User == nil && isAddress(u.Host) {
		return "is a URL: use " + u.Host
	}
	return ""
}

// serverHint returns what to write in place of a host without a port; "" for other texts.
func serverHint(s string) string {
	if _, err := strconv.Atoi(s); err != nil && isHost(s) {
		return "has no port: use " + net.JoinHostPort(s, "53")
	}
	return ""
}

func isServer(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && isHost(host)
}

// ParentEnv is the Egress.Parent that the environment names.
const ParentEnv = "env"

func isParent(s string) bool { return s == ParentEnv || notParent(s) == "" }

// notParent returns why s is not the address of a proxy, "" if it is one.
func notParent(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		// err repeats the password.
		return "is not a URL (example: http://proxy.example:3128)"
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "1"), 10, 16)
	switch {
	case !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme):
		return "must begin with http://, https:// or socks5://, or be env"
	case !isHost(u.Hostname()):
		return "has no host"
	case err != nil || port == 0:
		return "has an invalid port"
	case u.User != nil && u.User.Username() == "":
		return "has a password but no user name"
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return "must end after the host and the port"
	}
	return ""
}

// isWebURL reports whether s is an absolute http or https URL without a password.
func isWebURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && isHost(u.Hostname()) && u.User == nil && u.Fragment == ""
}

// isDirectory reports whether s is a web URL with TLS, in ASCII: it becomes part of a header.
func isDirectory(s string) bool {
	return strings.HasPrefix(s, "https://") && isWebURL(s) && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// onUse returns a regular expression that is compiled on first use. Classes of Unicode take too long
// for the start of every command.
func onUse(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// hostName matches names in any script. The resolver decides which exist.
var hostName = onUse(`^[\pL\pM\pN_-]+(\.[\pL\pM\pN_-]+)*\.?$`)

func isHost(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || len(s) <= 253 && hostName().MatchString(s)
}

// isPattern reports whether s is "*", a host, or "*." and a domain.
func isPattern(s string) bool {
	below, wild := strings.CutPrefix(s, "*.")
	_, addrErr := netip.ParseAddr(below)
	_, err := robots.ParseHost(below)
	return s == "*" || err == nil && !(wild && addrErr == nil)
}

// readTime reads a day or a time (RFC 3339) as the moment when it ends. A day ends when the
// next one begins. A year before 1970 is taken for a mistake.
func readTime(s string) (any, bool) {
	if s == "" {
		return time.Time{}, true
	}
	t, err := time.Parse(time.DateOnly, s)
	if err == nil {
		t = t.AddDate(0, 0, 1)
	} else if t, err = time.Parse(time.RFC3339, s); err != nil {
		return time.Time{}, false
	}
	t = t.UTC()
	return t, t.Year() >= 1970 && t.Before(endOfTime)
}

// endOfTime is after the last day that has a text.
var endOfTime = time.Date(10_000, 1, 1, 0, 0, 0, 1, time.UTC)

// writeTime writes midnight as the day before it.
func writeTime(v any) string {
	t := v.(time.Time).UTC()
	switch {
	case t.IsZero():
		return ""
	case t.Truncate(24 * time.Hour).Equal(t):
		return t.AddDate(0, 0, -1).Format(time.DateOnly)
	}
	return t.Format(time.RFC3339Nano)
}

// productToken matches a token (RFC 9110 5.6.2), which is what a product in a User-Agent header is.
var productToken = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// maxToken and similar bounds are not in the regular expressions, since a counted
// repetition is compiled into that many copies at each start.
const maxToken = 256

func isPurpose(text string) bool {
	_, known := usage.ParseCategory(text)
	return known
}

func isToken(s string) bool { return len(s) <= maxToken && productToken.MatchString(s) }

// name matches the name of a client. An IP address is not one: unnamed clients are known by it.
var name = onUse(namePattern)

const (
	namePattern = `^[\p{L}\p{N}][\p{L}\p{M}\p{N} ._@-]*$`
	// Characters.
	maxName = 100
)

func isName(s string) bool {
	_, err := netip.ParseAddr(s)
	return err != nil && utf8.RuneCountInString(s) <= maxName && name().MatchString(s) && s == strings.TrimSpace(s)
}

// bcryptHash matches a bcrypt hash. $2x$ marks hashes of an implementation with a bug.
var bcryptHash = regexp.MustCompile(`^(\$2[aby]\$)([0-9]{2})\$[./A-Za-z0-9]{53}$`)

// minCost and maxCost bound a hash's cost, and with it the time of one check: 16 takes
// about 3 s, 10 about 50 ms.
const minCost, maxCost = 4, 16

func isBcrypt(s string) bool { return bcryptHash.MatchString(s) && notQuiteBcrypt(s) == "" }

// notQuiteBcrypt is the hint for a whole line of htpasswd, and for a hash whose cost is
// out of range.
func notQuiteBcrypt(s string) string {
	if _, hash, named := strings.Cut(s, ":"); named && bcryptHash.MatchString(hash) {
		return "begins with a name: use only the hash after the colon"
	}
	m := bcryptHash.FindStringSubmatch(s)
	if m == nil {
		return ""
	}
	if cost, err := strconv.Atoi(m[2]); err != nil || cost < minCost || cost > maxCost {
		return "has the cost " + m[2] + ": must be between " + strconv.Itoa(minCost) + " and " + strconv.Itoa(maxCost)
	}
	return ""
}

// secret matches a bearer token (RFC 6750 2.1).
var secret = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// Characters, without the padding.
const minSecret, maxSecret = 16, 256

func isSecret(s string) bool {
	n := len(strings.TrimRight(s, "="))
	return n >= minSecret && n <= maxSecret && secret.MatchString(s)
}

// bytes of a reason.
const maxLine = 500

// isLine reports whether s can be written to responses and records as it is.
func isLine(s string) bool {
	return len(s) <= maxLine && s == strings.TrimSpace(s) && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// bytes (RFC 5321 4.5.3.1.3, without the angle brackets).
const maxEmail = 254

// isEmail reports whether s is an address without a display name (RFC 5322 3.4.1), as From
// has it (RFC 9110 10.1.2).
func isEmail(s string) bool {
	a, err := mail.ParseAddress(s)
	return err == nil && a.Name == "" && a.Address == s && len(s) <= maxEmail && isHeader(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r > 0x7f })
}

// bytes of a header's value.
const maxHeader = 4 << 10

func isHeader(s string) bool {
	if len(s) > maxHeader || s != strings.TrimSpace(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// runes of a file's own text in a message.
const maxShown = 60

// quoted returns text of the file in quotes, on one line, cut after maxShown runes.
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

// redisParameters are the query parameters that store.redis may have. The proxy chooses the others
// that the driver knows; one of them would make it trust any certificate.
var redisParameters = []string{"db", "master_name", "addr", "username", "password"}

// sentinelParameters need master_name: they are for Sentinels.
var sentinelParameters = []string{"addr", "username", "password"}

func isRedis(s string) bool { return notRedis(s) == "" }

// notRedis returns why s is not the URL of a Redis server, "" if it is one. The text repeats nothing of
// s, which may hold a password.
func notRedis(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "is not a URL (example: redis://:password@redis.example:6379/0; write %40 for @ and %2F for / in a password)"
	}
	if _, has := u.User.Password(); u.User != nil && !has {
		return "has a user name but no password (a password without a user name follows a colon: redis://:password@redis.example)"
	}
	switch u.Scheme {
	case "unix":
		if u.Host != "" || len(u.Path) < 2 {
			return "has no path of a socket (example: unix:///run/redis/redis.sock)"
		}
	case "redis", "rediss":
		if why := notServer(u); why != "" {
			return why
		}
	default:
		return "must begin with redis://, rediss:// or unix://"
	}
	return notParameters(u)
}

// notServer returns why u does not name a server, with or without a database; "" if it does.
func notServer(u *url.URL) string {
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "6379"), 10, 16)
	switch {
	case !isHost(u.Hostname()):
		return "has no host"
	case err != nil || port == 0:
		return "has an invalid port"
	case strings.Trim(u.Path, "/") != "" && !isDatabase(strings.Trim(u.Path, "/")):
		return "must end after the host and the database number"
	}
	return ""
}

// maxDatabase bounds the number of a database. Servers have far fewer.
const maxDatabase = 1 << 20

func isDatabase(s string) bool {
	n, err := strconv.ParseUint(s, 10, 32)
	return err == nil && n <= maxDatabase
}

// notParameters returns what is wrong with the query parameters of u, "" for nothing.
func notParameters(u *url.URL) string {
	asked, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Fragment != "" {
		return "has malformed parameters after the ?"
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		switch values := asked[name]; {
		case !slices.Contains(redisParameters, name):
			return "has an unknown parameter after the ?: use " + strings.Join(redisParameters, ", ")
		case slices.Contains(sentinelParameters, name) && !asked.Has("master_name"):
			return "has the parameter " + name + ", which is for Sentinel, but no master_name"
		case len(values) > 1 && name != "addr":
			return "has the parameter " + name + " more than once"
		case slices.Contains(values, ""):
			return "has an empty parameter " + name
		case name == "db" && !isDatabase(values[0]):
			return "has a parameter db that is not a database number"
		case name == "addr" && slices.ContainsFunc(values, func(a string) bool { return !isServer(a) }):
			return "has a parameter addr that is not the host:port of a Sentinel"
		}
	}
	if u.Scheme == "unix" && asked.Has("master_name") {
		return "has the parameter master_name, which is not possible with unix://"
	}
	return ""
}

// redactedRedis returns the URL s without its passwords. It is still valid.
func redactedRedis(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		// Parse accepts no such URL.
		return ""
	}
	if asked := u.Query(); asked.Has("password") {
		// As url.URL.Redacted does.
		asked.Set("password", "xxxxx")
		u.RawQuery = asked.Encode()
	}
	if _, has := u.User.Password(); has {
		return u.Redacted()
	}
	return u.String()
}

// maxReplica bounds a replica's name, which each record holds.
const maxReplica = 64

func isReplica(s string) bool {
	return s != "" && len(s) <= maxReplica && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

var filePrefix = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func isFilePrefix(s string) bool { return filePrefix.MatchString(s) }
