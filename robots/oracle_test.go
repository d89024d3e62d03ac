package robots_test

import (
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
// regular expression. It knows the dialects by their names only.
type oracle struct {
	dialect string
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

func (o *oracle) google() bool { return strings.HasPrefix(o.dialect, "google") }

var (
	oracleLineEnd = regexp.MustCompile("\r\n|\r|\n")
	oracleSeconds = regexp.MustCompile(`^([0-9]+(\.[0-9]*)?|\.[0-9]+)$`)
	oracleFields  = map[string]string{
		"user-agent": "agent", "allow": "allow", "crawl-delay": "delay", "disallow": "disallow",
	}
	oracleMisspelt = map[string]string{
		"useragent": "agent", "user agent": "agent", "crawldelay": "delay",
		"dissallow": "disallow", "dissalow": "disallow",
		"disalow": "disallow", "diasllow": "disallow", "disallaw": "disallow",
	}
)

func newOracle(text, dialect string) *oracle {
	for _, bom := range []string{"\xEF\xBB\xBF", "\xEF\xBB", "\xEF"} {
		if rest, found := strings.CutPrefix(text, bom); found {
			text = rest
			break
		}
	}
	o := &oracle{dialect: dialect}
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
			agent := o.newAgent(value)
			b := o.blocks[len(o.blocks)-1]
			b.agents = append(b.agents, agent)
			delayed = append(delayed, agent)
		}
		if len(o.blocks) == 0 {
			continue
		}
		switch b := o.blocks[len(o.blocks)-1]; kind {
		case "delay":
			if dialect == "coccoc" {
				afterRule = true
			}
			afterDelay = true
			for _, agent := range delayed {
				agent.delay = max(agent.delay, o.delay(value))
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
	tolerant := o.dialect == "standard" || o.dialect == "google"
	line = line[:min(len(line), 16663)]
	line, _, _ = strings.Cut(line, "\x00")
	line, _, _ = strings.Cut(line, "#")
	line = strings.Trim(line, space)
	key, value, found := strings.Cut(line, ":")
	if !found && tolerant {
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
	if tolerant {
		fields = append(fields, oracleMisspelt)
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
	if o.google() {
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

func (o *oracle) delay(s string) time.Duration {
	if o.dialect != "standard" && o.dialect != "coccoc" || !oracleSeconds.MatchString(s) {
		return 0
	}
	seconds, _ := strconv.ParseFloat(s, 64)
	if o.dialect == "coccoc" {
		seconds = math.Ceil(seconds)
	}
	return time.Duration(min(seconds, 1e8) * float64(time.Second))
}

// group returns the name of the group for one token, its rules and its delay.
func (o *oracle) group(token string) (name string, rules []oracleRule, delay time.Duration) {
	token = oracleLower(oracleWord(token))
	names := []string{token}
	for o.dialect == "google-2019" || o.dialect == "coccoc" {
		end := strings.LastIndexAny(token, "-_.")
		if end < 0 {
			break
		}
		token = token[:end]
		names = append(names, token)
	}
	for _, name := range names {
		if name == "" || o.google() && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz-_") != "" {
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

// verdict returns the verdict of rules on a path.
func (o *oracle) verdict(rules []oracleRule, path string) robots.Verdict {
	if o.google() {
		path, _, _ = strings.Cut(path, "\x00")
		var escaped strings.Builder
		for _, c := range []byte(path) {
			if c < 0x80 {
				escaped.WriteByte(c)
			} else {
				fmt.Fprintf(&escaped, "%%%02X", c)
			}
		}
		path = escaped.String()
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if !o.google() {
		path = strings.ReplaceAll(oracleNormal(path), "*", "%2A")
	}
	var best *oracleRule
	most := -1
	for i, r := range rules {
		if size := o.size(r, path); size > most || size >= 0 && size == most && r.allow && !best.allow {
			best, most = &rules[i], size
		}
	}
	if best == nil {
		return robots.Verdict{Allow: true}
	}
	return robots.Verdict{Allow: best.allow || best.pattern == "", Rule: best.pattern, Line: best.line}
}

// size returns the rank of a rule that matches, and -1 for other rules.
func (o *oracle) size(r oracleRule, path string) int {
	if r.pattern == "" {
		if o.dialect == "google" {
			return 0
		}
		return -1
	}
	if r.pattern[0] != '/' && r.pattern[0] != '*' {
		return -1
	}
	start, anchored := strings.CutSuffix(r.pattern, "$")
	pattern := oracleNormal(start)
	if anchored {
		pattern += "$"
	}
	if o.google() {
		pattern = oracleEscaped(r.pattern)
	}
	if oracleMatches(pattern, anchored, path) {
		if o.google() {
			return len(pattern)
		}
		if !anchored {
			pattern = strings.TrimRight(pattern, "*")
		}
		return len(strings.ReplaceAll(pattern, "%24", "$"))
	}
	if slash := strings.LastIndexByte(pattern, '/'); o.dialect == "google" && r.allow && slash >= 0 && strings.HasPrefix(pattern[slash:], "/index.htm") {
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
