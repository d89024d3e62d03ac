package robots_test

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"robotsproxy/robots"
)

// An oracle is a second, naive implementation: it keeps every line and tries every rule with a
// regular expression. It knows what each field of a dialect means.
type oracle struct {
	dialect robots.Dialect
	blocks  []*oracleBlock
}

type oracleBlock struct {
	agents []*oracleAgent
	rules  []oracleRule
}

type oracleAgent struct {
	full, cut string
	delay     time.Duration
}

type oracleRule struct {
	allow   bool
	pattern string
	line    int
}

// oracleOrigin is the origin of every file.
var oracleOrigin = robots.Origin{Scheme: "https", Host: "example.com", Port: 443}

var (
	oracleLineEnd  = regexp.MustCompile("\r\n|\r|\n")
	oracleSeconds  = regexp.MustCompile(`^([0-9]+(\.[0-9]*)?|\.[0-9]+)$`)
	oracleUnit     = `([ \t\n\v\f\r]*(?i:(s)(?:ec|ecs|econd|econds)?|(m)(?:in|ins|inute|inutes)?|(h)(?:our|ours)?))?`
	oracleDuration = regexp.MustCompile(`^["']*([0-9]+[.,]?[0-9]*|[.,][0-9]+)` + oracleUnit + `["',;. ]*$`)
	oracleRate     = regexp.MustCompile(`(?s)^([0-9]+)[ \t\n\v\f\r]*/[ \t\n\v\f\r]*([0-9]+\.?[0-9]*|\.[0-9]+)` + oracleUnit + `([ \t\n\v\f\r.,;"'].*)?$`)
	oracleURL      = regexp.MustCompile(`(?s)^([^/?#:]*)://([^/?#]*)(/.*)?$`)
	oracleFields   = map[string]string{
		"user-agent": "agent", "allow": "allow", "crawl-delay": "delay", "disallow": "disallow",
	}
	oracleUsage    = map[string]string{"content-usage": "usage"}
	oracleCareful  = map[string]string{"request-rate": "rate"}
	oracleGuessed  = map[string]string{"crawl delay": "delay"}
	oracleMisspelt = map[string]string{
		"useragent": "agent", "user agent": "agent", "crawldelay": "delay",
		"dissallow": "disallow", "dissalow": "disallow",
		"disalow": "disallow", "diasllow": "disallow", "disallaw": "disallow",
	}
)

func newOracle(text string, dialect robots.Dialect) *oracle {
	for _, bom := range []string{"\xEF\xBB\xBF", "\xEF\xBB", "\xEF"} {
		if rest, found := strings.CutPrefix(text, bom); found {
			text = rest
			break
		}
	}
	o := &oracle{dialect: dialect}
	if dialect.Careful {
		text = oracleUTF16(text)
	}
	var delayed []*oracleAgent
	afterRule, afterDelay := true, true
	for i, line := range oracleLineEnd.Split(text, -1) {
		kind, value := o.line(line)
		if kind == "agent" {
			if afterRule {
				o.blocks = append(o.blocks, new(oracleBlock))
			}
			if afterRule || afterDelay {
				delayed = nil
			}
			afterRule, afterDelay = false, false
			names := []string{value}
			if list, _, _ := strings.Cut(value, "("); dialect.Careful && strings.Contains(list, ",") {
				names = strings.Split(list, ",")
			}
			b := o.blocks[len(o.blocks)-1]
			for _, name := range names {
				agent := o.newAgent(strings.Trim(name, " \t\n\v\f\r"))
				b.agents = append(b.agents, agent)
				delayed = append(delayed, agent)
			}
		}
		if len(o.blocks) == 0 {
			continue
		}
		switch b := o.blocks[len(o.blocks)-1]; kind {
		case "usage":
			afterRule = true
		case "delay", "rate":
			if dialect.Delay == robots.DelayOfGroup {
				afterRule = true
			}
			afterDelay = true
			for _, agent := range delayed {
				agent.delay = max(agent.delay, o.delay(kind, value))
			}
		case "allow", "disallow":
			afterRule = true
			b.rules = append(b.rules, oracleRule{kind == "allow", value, i + 1})
		}
	}
	return o
}

func (o *oracle) line(line string) (kind, value string) {
	const space = " \t\n\v\f\r"
	line = line[:min(len(line), 16663)]
	line, _, _ = strings.Cut(line, "\x00")
	line, _, _ = strings.Cut(line, "#")
	line = strings.Trim(line, space)
	key, value, found := strings.Cut(line, ":")
	if !found && o.dialect.Misspellings {
		two := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
		if len(two) == 2 {
			key, value = two[0], two[1]
			found = true
		}
	}
	if !found {
		return "", ""
	}
	fields := []map[string]string{oracleFields}
	if o.dialect.Misspellings {
		fields = append(fields, oracleMisspelt)
	}
	if o.dialect.UsageRules {
		fields = append(fields, oracleUsage)
	}
	if o.dialect.Careful {
		fields = append(fields, oracleCareful)
	}
	if o.dialect.Careful && o.dialect.Misspellings {
		fields = append(fields, oracleGuessed)
	}
	for _, f := range fields {
		for name, kind := range f {
			if strings.HasPrefix(oracleLower(key), name) {
				return kind, strings.Trim(value, space)
			}
		}
	}
	return "", ""
}

func (o *oracle) newAgent(value string) *oracleAgent {
	if value == "*" || len(value) > 1 && value[0] == '*' && strings.IndexByte(" \t\n\v\f\r", value[1]) >= 0 {
		return &oracleAgent{full: "*"}
	}
	full := oracleLower(oracleWord(value))
	cut := full
	if i := strings.IndexFunc(full, func(r rune) bool { return r != '-' && r != '_' && (r < 'a' || r > 'z') }); i >= 0 {
		cut = full[:i]
	}
	if o.dialect.LettersOnly {
		full = cut
	}
	return &oracleAgent{full: full, cut: cut}
}

func oracleWord(s string) string {
	for i := range len(s) {
		if c := s[i]; c < 0x80 && !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", rune(c)) {
			return s[:i]
		}
	}
	return s
}

func oracleLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func (o *oracle) delay(kind, s string) time.Duration {
	number, unit, pages := s, []string(nil), 1.0
	switch {
	case o.dialect.Delay == robots.NoDelay:
		return 0
	case !o.dialect.Careful && oracleSeconds.MatchString(s):
	case !o.dialect.Careful:
		return 0
	case kind == "rate":
		found := oracleRate.FindStringSubmatch(s)
		if found == nil {
			return 0
		}
		pages, _ = strconv.ParseFloat(found[1], 64)
		number, unit = found[2], found[4:]
	default:
		found := oracleDuration.FindStringSubmatch(s)
		if found == nil {
			return 0
		}
		number, unit = found[1], found[3:]
	}
	if pages == 0 {
		return 0
	}
	seconds, _ := strconv.ParseFloat(strings.Replace(number, ",", ".", 1), 64)
	switch {
	case o.dialect.Delay == robots.DelayOfGroup:
		seconds = math.Ceil(seconds)
	case unit == nil:
	case unit[1] != "":
		seconds *= 60
	case unit[2] != "":
		seconds *= 3600
	}
	return time.Duration(min(seconds/pages, 1e8) * float64(time.Second))
}

// group returns the name of the group for one token, its rules and its delay.
func (o *oracle) group(token string) (name string, rules []oracleRule, delay time.Duration) {
	token = oracleLower(oracleWord(token))
	names := []string{token}
	for o.dialect.NamePrefixes {
		end := strings.LastIndexAny(token, "-_.")
		if end < 0 {
			break
		}
		token = token[:end]
		names = append(names, token)
	}
	for _, name := range names {
		if name == "" || o.dialect.LettersOnly && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz-_") != "" {
			continue
		}
		for _, is := range []func(*oracleAgent) bool{
			func(a *oracleAgent) bool { return a.full == name },
			func(a *oracleAgent) bool { return a.cut == name },
		} {
			if found, rules, delay := o.of(is); found {
				return name, rules, delay
			}
		}
	}
	found, rules, delay := o.of(func(a *oracleAgent) bool { return a.full == "*" })
	if !found {
		return "", nil, 0
	}
	return "*", rules, delay
}

// of returns the rules and the delay of the agents that is selects.
func (o *oracle) of(is func(*oracleAgent) bool) (found bool, rules []oracleRule, delay time.Duration) {
	for _, b := range o.blocks {
		if slices.ContainsFunc(b.agents, is) {
			found = true
			rules = append(rules, b.rules...)
		}
		for _, a := range b.agents {
			if is(a) {
				delay = max(delay, a.delay)
			}
		}
	}
	return found, rules, delay
}

// forms returns a path in the form for comparison, and in the unified form.
func (o *oracle) forms(path string) (normal, one string) {
	if o.dialect.AsWritten {
		path, _, _ = strings.Cut(path, "\x00")
		path = oracleHigh(path)
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if o.dialect.AsWritten {
		return path, path
	}
	normal = strings.ReplaceAll(oracleNormal(path), "*", "%2A")
	if o.dialect.ReservedAsWritten {
		return normal, normal
	}
	return normal, strings.ReplaceAll(oracleNormal(oracleUnified(path)), "*", "%2A")
}

// verdict returns the verdict of rules on a path.
func (o *oracle) verdict(rules []oracleRule, path string) robots.Verdict {
	path, one := o.forms(path)
	var best *oracleRule
	most := -1
	for i, r := range rules {
		if size := o.size(r, path, one); size > most || size >= 0 && size == most && r.allow && !best.allow {
			best, most = &rules[i], size
		}
	}
	if best == nil {
		return robots.Verdict{Allow: true}
	}
	return robots.Verdict{Allow: best.allow || best.pattern == "", Rule: best.pattern, Line: best.line}
}

// size returns the rank of a rule that matches a path or its unified form, and -1 for other rules.
func (o *oracle) size(r oracleRule, path, one string) int {
	if r.pattern == "" {
		if o.dialect.EmptyRules {
			return 0
		}
		return -1
	}
	if found := oracleURL.FindStringSubmatch(r.pattern); found != nil && o.dialect.Careful {
		if origin, err := robots.ParseOrigin(found[1], found[2]); err == nil && origin == oracleOrigin {
			r.pattern = cmp.Or(found[3], "/")
		}
	}
	if r.pattern[0] != '/' && r.pattern[0] != '*' {
		return -1
	}
	start, anchored := strings.CutSuffix(r.pattern, "$")
	pattern := oracleNormal(start)
	if anchored {
		pattern += "$"
	}
	if o.dialect.AsWritten {
		pattern = oracleEscaped(r.pattern)
	}
	folded := oracleNormal(oracleUnified(start))
	if anchored {
		folded += "$"
	}
	if oracleMatches(pattern, anchored, path) || !o.dialect.ReservedAsWritten && oracleMatches(folded, anchored, one) {
		if o.dialect.AsWritten {
			return len(pattern)
		}
		return len(strings.ReplaceAll(pattern, "%24", "$"))
	}
	if slash := strings.LastIndexByte(pattern, '/'); o.dialect.IndexPages && r.allow && slash >= 0 && strings.HasPrefix(pattern[slash:], "/index.htm") {
		if pattern = pattern[:slash+1] + "$"; oracleMatches(pattern, true, path) {
			return len(pattern)
		}
	}
	return -1
}

func oracleMatches(pattern string, anchored bool, path string) bool {
	expr := regexp.QuoteMeta(pattern)
	if anchored {
		expr = strings.TrimSuffix(expr, `\$`) + "$"
	}
	return regexp.MustCompile("(?s)^" + strings.ReplaceAll(expr, `\*`, ".*")).MatchString(path)
}

var oracleEscape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

func oracleNormal(s string) string {
	s = oracleEscape.ReplaceAllStringFunc(s, func(e string) string {
		n, _ := strconv.ParseUint(e[1:], 16, 8)
		if n < 0x80 && strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~", rune(n)) {
			return string(rune(n))
		}
		return strings.ToUpper(e)
	})
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:/?#[]@!&'()*+,;=%", s[i]) >= 0 {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

func oracleHigh(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if s[i] < 0x80 {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

func oracleEscaped(s string) string {
	return oracleHigh(oracleEscape.ReplaceAllStringFunc(s, strings.ToUpper))
}

// oracleUnified undoes the escapes of reserved characters.
func oracleUnified(s string) string {
	undo := func(s, reserved string) string {
		return oracleEscape.ReplaceAllStringFunc(s, func(e string) string {
			n, _ := strconv.ParseUint(e[1:], 16, 8)
			if n < 0x80 && strings.ContainsRune(reserved, rune(n)) {
				return string(rune(n))
			}
			return e
		})
	}
	path, query, found := strings.Cut(s, "?")
	if path = undo(path, ":@!'(),;=+&[]"); !found {
		return path
	}
	return path + "?" + undo(query, ":@!'(),;=+&[]/?")
}

// oracleUTF16 decodes UTF-16 after a byte order mark.
func oracleUTF16(s string) string {
	for mark, little := range map[string]bool{"\xFF\xFE": true, "\xFE\xFF": false} {
		rest, found := strings.CutPrefix(s, mark)
		if !found {
			continue
		}
		if !strings.Contains(rest[:min(len(rest), 100)], "\x00") {
			return rest
		}
		var b strings.Builder
		var high rune
		for ; len(rest) > 1; rest = rest[2:] {
			c := rune(rest[0])<<8 | rune(rest[1])
			if little {
				c = rune(rest[1])<<8 | rune(rest[0])
			}
			switch isLow := c >= 0xDC00 && c < 0xE000; {
			case isLow && high != 0:
				c, high = 0x10000+(high-0xD800)<<10+c-0xDC00, 0
			case high != 0:
				b.WriteRune('\uFFFD')
				high = 0
			}
			if c >= 0xD800 && c < 0xDC00 {
				high = c
				continue
			}
			b.WriteRune(c) // U+FFFD for half a surrogate
		}
		if high != 0 {
			b.WriteRune('\uFFFD')
		}
		return b.String()
	}
	return s
}
