package checkcmd

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy"
	"robotsproxy/policy/explain"
	"robotsproxy/robots"
)

const (
	// maxCase bounds a line of a batch, in bytes. A robots.txt that is far longer than is read fits, with each byte escaped.
	maxCase = 16 << 20

	// batchBuffer is how many bytes of a batch are read, and written, at once.
	batchBuffer = 64 << 10
)

// checkBatch reads cases from in and writes an answer to each to out, until in ends.
func checkBatch(cfg config.Config, d robots.Dialect, in io.Reader, out io.Writer) error {
	// Without this, a write to a closed pipe would end the process before it reports the error.
	signal.Ignore(syscall.SIGPIPE)
	b := batch{dialect: d, most: cfg.Robots.MaxCrawlDelay, over: daemon.OverMax(cfg)}
	return b.run(in, out)
}

// A batch judges cases by the rules alone, under robots.readings: literal.
type batch struct {
	dialect robots.Dialect

	// most is the longest Crawl-delay that is kept unchanged; over says what happens to a longer one.
	most time.Duration
	over policy.OverMax

	// last is the case before. Consecutive cases often have the same file.
	last batchCase

	// file is the file of last; nil before the first case.
	file *robots.File

	// hasURLs says that file may have a rule that is a URL, so that it depends on the origin.
	hasURLs bool

	// origin is the one for which file was parsed; zero without hasURLs.
	origin robots.Origin
}

// A batchCase is a line of input. A member that was not given is nil.
type batchCase struct {
	Robots    *string `json:"robots"`
	Base64    *string `json:"robots_b64"`
	Agent     *string `json:"agent"`
	UserAgent *string `json:"user_agent"`
	URL       *string `json:"url"`
}

// A batchAnswer is a line of output.
type batchAnswer struct {
	Allow bool   `json:"allow"`
	Rule  string `json:"rule,omitempty"`
	Line  int    `json:"line,omitempty"`
	Group string `json:"group,omitempty"`

	// Delay is in seconds.
	Delay float64 `json:"crawl_delay,omitempty"`
	Agent *string `json:"agent,omitempty"`
}

// A batchError is the answer to a line that cannot be judged.
type batchError struct {
	Error string `json:"error"`
}

func (b *batch) run(in io.Reader, out io.Writer) error {
	buffered := bufio.NewWriterSize(out, batchBuffer)
	lines := lineReader{in: bufio.NewReaderSize(&flushingReader{in: in, answers: buffered}, batchBuffer)}
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return writeError(buffered.Flush())
		}
		if err != nil && !errors.Is(err, errCaseTooLong) {
			return err
		}
		if err == nil && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var answer any = batchError{errCaseTooLong.Error()}
		if err == nil {
			answer = b.answer(line)
		}
		if err := writeError(cli.WriteJSON(buffered, answer)); err != nil {
			return err
		}
	}
}

// answer returns the batchAnswer or the batchError for a line.
func (b *batch) answer(line []byte) any {
	c, err := readCase(line)
	if err == nil {
		err = b.compile(c)
	}
	if err != nil {
		return batchError{err.Error()}
	}
	return b.judge(c)
}

// readCase reads a line and checks that it has what a case needs.
func readCase(line []byte) (c batchCase, err error) {
	if !utf8.Valid(line) || halfSurrogate(line) {
		// encoding/json would replace it with U+FFFD, and the file that is judged would be another.
		return c, errors.New("must be valid Unicode: give other bytes as robots_b64, or percent-encoded in url")
	}
	if err := json.Unmarshal(line, &c); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field == "" {
			return c, fmt.Errorf("must be a JSON object, got %s", wrong.Value)
		} else if ok {
			return c, fmt.Errorf("%s: must be a string, got %s", wrong.Field, wrong.Value)
		}
		return c, fmt.Errorf("must be a JSON object: %w", err)
	}
	switch {
	case c.Robots == nil && c.Base64 == nil:
		return c, errors.New("robots or robots_b64 is required")
	case c.Robots != nil && c.Base64 != nil:
		return c, errors.New("robots and robots_b64 exclude each other")
	case c.Agent == nil && c.UserAgent == nil:
		return c, errors.New("agent or user_agent is required")
	case c.Agent != nil && c.UserAgent != nil:
		return c, errors.New("agent and user_agent exclude each other")
	case c.URL == nil:
		return c, errors.New("url is required")
	case c.Agent != nil && strings.ContainsAny(*c.Agent, " \t();"):
		return c, errors.New("agent: must be a product token; give a whole header as user_agent")
	}
	return c, nil
}

// halfSurrogate reports whether a JSON text has an escape for half of a surrogate pair alone, which is no character (RFC 8259 8.2).
func halfSurrogate(line []byte) bool {
	for {
		_, rest, found := bytes.Cut(line, []byte{'\\'})
		if !found || len(rest) == 0 {
			return false
		}
		first := escapedUnit(rest)
		if utf16.IsSurrogate(first) {
			if len(rest) < 6 || rest[5] != '\\' || utf16.DecodeRune(first, escapedUnit(rest[6:])) == utf8.RuneError {
				return true
			}
			rest = rest[6:]
		}
		line = rest[1:]
	}
}

// escapedUnit returns the code unit of an escape such as u00e9, or 0 for any other text.
func escapedUnit(s []byte) rune {
	if len(s) < 5 || s[0] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(s[1:5]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

// compile parses the file of a case into b.file.
func (b *batch) compile(c batchCase) error {
	sameText := same(b.last.Robots, c.Robots) && same(b.last.Base64, c.Base64)
	if b.file != nil && sameText && (!b.hasURLs || b.origin == originOf(*c.URL)) {
		return nil
	}
	text := ""
	if c.Robots != nil {
		text = *c.Robots
	} else {
		decoded, err := base64.StdEncoding.DecodeString(*c.Base64)
		if err != nil {
			return fmt.Errorf("robots_b64: %w", err)
		}
		text = string(decoded)
	}
	text = text[:min(len(text), robots.MaxBytes)]
	decoded, _, err := robots.Decode(text, b.dialect)
	if err != nil {
		return err
	}
	b.last, b.origin = c, robots.Origin{}
	if b.hasURLs = strings.Contains(decoded, "://"); b.hasURLs {
		b.origin = originOf(*c.URL)
	}
	b.file = robots.ParseFor(b.origin, text, b.dialect)
	return nil
}

// originOf returns the origin of a URL; the zero Origin if it has none.
func originOf(address string) robots.Origin {
	// Without an origin in address, both functions return zero values.
	scheme, authority, _, _ := robots.SplitURL(address)
	o, _ := robots.ParseOrigin(scheme, authority)
	return o
}

func same(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// judge returns the batchAnswer for a case, or the batchError if its rules are too complex.
func (b *batch) judge(c batchCase) any {
	// Without a token, the group "*" counts.
	var tokens []string
	if c.UserAgent != nil {
		tokens = robots.ProductTokens(*c.UserAgent)
	} else if *c.Agent != "" {
		tokens = []string{*c.Agent}
	}
	group := b.file.For(tokens...)
	given, ok := b.over.Keep(group.CrawlDelay(), b.most)
	a := batchAnswer{Group: group.Name(), Delay: given.Seconds()}
	if c.UserAgent != nil {
		token := group.Token()
		a.Agent = &token
	}
	path := robots.PathQuery(*c.URL)
	switch {
	case robots.IsRobotsTxt(path) && !b.dialect.MatchRobotsTxt:
		a.Allow = true
	case ok:
		scheme, _, _, _ := robots.SplitURL(*c.URL)
		v := policy.MatchLiteral(group, robots.Target{Origin: robots.Origin{Scheme: strings.ToLower(scheme)}, PathQuery: path})
		if v.GaveUp {
			return batchError{explain.Reason(string(policy.ReasonTooComplex))}
		}
		a.Allow, a.Rule, a.Line = v.Allow, v.Rule, v.Line
	}
	return a
}

// A flushingReader is the input of a batch. It writes the answers that are ready before it waits for more input, so that a program
// can write a line and wait for its answer.
type flushingReader struct {
	in      io.Reader
	answers *bufio.Writer

	// err is the error of the last read. It is returned from then on.
	err error
}

func (r *flushingReader) Read(p []byte) (n int, err error) {
	if r.err != nil {
		return 0, r.err
	}
	if err := writeError(r.answers.Flush()); err != nil {
		return 0, err
	}
	n, r.err = r.in.Read(p)
	if r.err != nil && !errors.Is(r.err, io.EOF) {
		r.err = fmt.Errorf("read the cases: %w", r.err)
	}
	return n, r.err
}

func writeError(err error) error {
	if err != nil {
		return fmt.Errorf("write the answers: %w", err)
	}
	return nil
}

var errCaseTooLong = fmt.Errorf("the line has more than %d bytes", maxCase)

// A lineReader reads lines of bounded length.
type lineReader struct {
	in   *bufio.Reader
	line []byte
}

// next returns the next line without its end. The line is valid until the next call. For a line of more than maxCase bytes it
// returns errCaseTooLong.
func (l *lineReader) next() ([]byte, error) {
	l.line = l.line[:0]
	size := 0
	for more := true; more; {
		part, prefix, err := l.in.ReadLine()
		if err != nil && size == 0 {
			return nil, err
		}
		if size += len(part); size <= maxCase {
			l.line = append(l.line, part...)
		}
		more = prefix
	}
	if size > maxCase {
		return nil, errCaseTooLong
	}
	return l.line, nil
}
