package robots_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An oracle is a second, naive reading of robots.txt: it keeps every line and
// tries every rule with a regular expression.
type oracle struct {
	blocks []*oracleBlock
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

var (
	oracleLineEnd = regexp.MustCompile("\r\n|\r|\n")
	oracleSeconds = regexp.MustCompile(`^([0-9]+(\.[0-9]*)?|\.[0-9]+)$`)
	oracleFields  = map[string]string{
		"user-agent": "agent", "useragent": "agent", "user agent": "agent",
		"allow": "allow", "crawl-delay": "delay", "crawldelay": "delay",
		"disallow": "disallow", "dissallow": "disallow", "dissalow": "disallow",
		"disalow": "disallow", "diasllow": "disallow", "disallaw": "disallow",
	}
)

func newOracle(text string) *oracle {
	for _, bom := range []string{"\xEF\xBB\xBF", "\xEF\xBB", "\xEF"} {
		if rest, found := strings.CutPrefix(text, bom); found {
			text = rest
			break
		}
	}
	o := new(oracle)
	var delayed []*oracleAgent
	afterRule, afterDelay := true, true
	for i, line := range oracleLineEnd.Split(text, -1) {
		kind, value := oracleLine(line)
		if kind == "agent" {
			if afterRule {
				o.blocks = append(o.blocks, new(oracleBlock))
			}
			if afterRule || afterDelay {
				delayed = nil
			}
			afterRule, afterDelay = false, false
			agent := newOracleAgent(value)
			b := o.blocks[len(o.blocks)-1]
			b.agents = append(b.agents, agent)
			delayed = append(delayed, agent)
		}
		if len(o.blocks) == 0 {
			continue
		}
		switch b := o.blocks[len(o.blocks)-1]; kind {
		case "delay":
			afterDelay = true
			for _, agent := range delayed {
				agent.delay = max(agent.delay, oracleDelay(value))
			}
		case "allow", "disallow":
			afterRule = true
			if value != "" {
				b.rules = append(b.rules, oracleRule{kind == "allow", value, i + 1})
			}
		}
	}
	return o
}

func oracleLine(line string) (kind, value string) {
	const space = " \t\n\v\f\r"
	line = line[:min(len(line), 16663)]
	line, _, _ = strings.Cut(line, "\x00")
	line, _, _ = strings.Cut(line, "#")
	line = strings.Trim(line, space)
	key, value, found := strings.Cut(line, ":")
	if !found {
		two := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
		if len(two) != 2 {
			return "", ""
		}
		key, value = two[0], two[1]
	}
	for name, kind := range oracleFields {
		if strings.HasPrefix(oracleLower(key), name) {
			return kind, strings.Trim(value, space)
		}
	}
	return "", ""
}

func newOracleAgent(value string) *oracleAgent {
	if value == "*" || len(value) > 1 && value[0] == '*' && strings.IndexByte(" \t\n\v\f\r", value[1]) >= 0 {
		return &oracleAgent{full: "*"}
	}
	full := oracleLower(oracleWord(value))
	cut := full
	if i := strings.IndexFunc(full, func(r rune) bool { return r != '-' && r != '_' && (r < 'a' || r > 'z') }); i >= 0 {
		cut = full[:i]
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

func oracleDelay(s string) time.Duration {
	if !oracleSeconds.MatchString(s) {
		return 0
	}
	seconds, _ := strconv.ParseFloat(s, 64)
	return time.Duration(min(seconds, 1e8) * float64(time.Second))
}

// group gives the name of the group for one token, its rules and its delay.
func (o *oracle) group(token string) (name string, rules []oracleRule, delay time.Duration) {
	token = oracleLower(oracleWord(token))
	for _, by := range []struct {
		name string
		is   func(*oracleAgent) bool
	}{
		{token, func(a *oracleAgent) bool { return token != "" && a.full == token }},
		{token, func(a *oracleAgent) bool { return token != "" && a.cut == token }},
		{"*", func(a *oracleAgent) bool { return a.full == "*" }},
	} {
		found := false
		for _, b := range o.blocks {
			if slices.ContainsFunc(b.agents, by.is) {
				rules = append(rules, b.rules...)
			}
			for _, a := range b.agents {
				if by.is(a) {
					found, delay = true, max(delay, a.delay)
				}
			}
		}
		if found {
			return by.name, rules, delay
		}
	}
	return "", nil, 0
}

// oracleMatch gives the verdict of rules on a path, and the size of the rule that decided.
func oracleMatch(rules []oracleRule, path string) (allow bool, size int) {
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	path = strings.ReplaceAll(oracleNormal(path), "*", "%2A")
	allow, size = true, -1
	for _, r := range rules {
		pattern := oracleNormal(r.pattern)
		expr := regexp.QuoteMeta(pattern)
		if strings.HasSuffix(r.pattern, "$") {
			expr = strings.TrimSuffix(expr, `\$`) + "$"
		} else {
			pattern = strings.TrimRight(pattern, "*")
		}
		expr = "(?s)^" + strings.ReplaceAll(expr, `\*`, ".*")
		if (r.pattern[0] == '/' || r.pattern[0] == '*') && regexp.MustCompile(expr).MatchString(path) {
			if len(pattern) > size || len(pattern) == size && r.allow {
				allow, size = r.allow, len(pattern)
			}
		}
	}
	return allow, size
}

var oracleEscape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

func oracleNormal(s string) string {
	s = oracleEscape.ReplaceAllStringFunc(s, func(e string) string {
		n, _ := strconv.ParseUint(e[1:], 16, 8)
		if n < 0x80 && strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~$", rune(n)) {
			return string(rune(n))
		}
		return strings.ToUpper(e)
	})
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
