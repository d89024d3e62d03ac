package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy"
	"robotsproxy/proxy/egress"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// The exit statuses of check.
const (
	exitDisallowed = 1
	exitUnknown    = 2
)

type checkFlags struct {
	configFlags
	userAgent, dialect, robots string
	json                       bool
}

func checkCommand() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check [flags] URL...",
		Short: "Say whether addresses may be fetched, and why",
		Long: `Say whether addresses may be fetched, and which rule says so, by the same
judgement that the proxy makes. The exit status is 0 when all are allowed, 1
when one is disallowed, 2 when it cannot be told.`,
		Example: `  robotsproxy check -A 'FooBot/1.0' https://example.com/page https://example.com/private
  robotsproxy check --robots robots.txt --json https://example.com/
  curl -s https://example.com/robots.txt | robotsproxy check --robots - https://example.com/`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, urls []string) error {
			err := check(cmd, f, urls)
			if _, said := exitStatus(err); !said {
				err = &statusError{exitUnknown, err} // 1 would say: disallowed
			}
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&f.userAgent, "user-agent", "A", "", "a whole User-Agent header: who asks")
	cmd.Flags().StringVar(&f.dialect, "dialect", "", "how robots.txt is read, instead of the configuration's")
	cmd.Flags().StringVar(&f.robots, "robots", "", "a file to judge by instead of the origin's robots.txt; - for standard input")
	cmd.Flags().BoolVar(&f.json, "json", false, "one JSON object a line")
	return cmd
}

func check(cmd *cobra.Command, f checkFlags, urls []string) error {
	cfg, err := f.load()
	if err != nil {
		return err
	}
	if f.dialect != "" {
		cfg.Robots.Dialect = f.dialect
	}
	if f.userAgent != "" {
		cfg.Identity.UserAgent = f.userAgent
	}
	b, done, err := checkBook(cfg, f.robots, cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer done()
	engine, err := judge(cfg, b)
	if err != nil {
		return err
	}
	status := 0
	for _, u := range urls {
		v := explain(cmd.Context(), engine, cfg.Identity.UserAgent, u)
		status = max(status, v.status())
		if err := v.print(cmd.OutOrStdout(), f.json); err != nil {
			return err
		}
	}
	if status != 0 {
		return exitError(status)
	}
	return nil
}

// checkBook knows each origin's robots.txt: the real one, or one file for all.
func checkBook(cfg config.Config, file string, stdin io.Reader) (policy.Book, func(), error) {
	if file == "" {
		d, err := door(cfg)
		if err != nil {
			return nil, nil, err
		}
		b, err := book(cfg, d)
		if err != nil {
			d.Close()
		}
		return b, d.Close, err
	}
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, robots.MaxBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", file, err)
	}
	b, err := cache.New(cache.Options{Fetcher: oneFile{name: file, text: text}})
	return b, func() {}, err
}

// oneFile is the robots.txt of every origin.
type oneFile struct {
	name string
	text []byte
}

func (f oneFile) Fetch(context.Context, robots.Origin, string) *fetch.Answer {
	return &fetch.Answer{URL: f.name, Status: 200, Body: f.text, MaxAge: -1, Connected: true, Fetched: time.Now()}
}

// A finding is what check says of one address; as JSON, in the audit's words.
type finding struct {
	URL     string  `json:"url"`
	Allow   bool    `json:"allow"`
	Reason  string  `json:"reason,omitempty"`
	Rule    string  `json:"rule,omitempty"`
	Line    int     `json:"line,omitempty"`
	Group   string  `json:"group,omitempty"`
	Agent   string  `json:"agent,omitempty"`
	Delay   float64 `json:"crawl_delay_s,omitempty"`
	Asked   float64 `json:"crawl_delay_asked_s,omitempty"`
	Robots  string  `json:"robots_url,omitempty"`
	Fetched string  `json:"robots_fetched,omitempty"`
	Error   string  `json:"error,omitempty"`
}

func explain(ctx context.Context, e *policy.Engine, userAgent, address string) finding {
	f := finding{URL: address}
	u, err := url.Parse(address)
	var origin robots.Origin
	if err == nil {
		origin, err = robots.ParseOrigin(u.Scheme, u.Host)
	}
	if err == nil && u.User != nil {
		err = errors.New("credentials in the address")
	}
	if err != nil {
		f.Error = err.Error()
		return f
	}
	d := e.Decide(ctx, policy.Request{Method: "GET", Origin: origin, PathQuery: u.RequestURI(), UserAgent: userAgent})
	f.Allow, f.Reason = d.Verdict == policy.Allow, string(d.Reason)
	f.Rule, f.Line, f.Group, f.Agent = d.Rule, d.Line, d.Group, d.Token
	f.Delay, f.Asked = d.Pace.CrawlDelay.Seconds(), d.Asked.Seconds()
	if a := d.Ruling.Answer; a != nil {
		f.Robots = a.URL
	}
	if at := d.Ruling.Fetched(); !at.IsZero() {
		f.Fetched = at.UTC().Format(time.RFC3339)
	}
	switch {
	case errors.Is(d.Err, egress.ErrForbiddenAddr):
		f.Reason = string(policy.ReasonAddress)
	case errors.Is(d.Err, egress.ErrForbiddenPort):
		f.Reason = string(policy.ReasonPort)
	}
	if d.Err != nil {
		f.Error = d.Err.Error()
	}
	return f
}

// status is what this finding alone would make the exit status.
func (f finding) status() int {
	switch policy.Reason(f.Reason) {
	case "", policy.ReasonUnreachable, policy.ReasonOrigin, policy.ReasonClient, policy.ReasonAddress, policy.ReasonPort:
		return exitUnknown
	}
	if f.Allow {
		return 0
	}
	return exitDisallowed
}

func (f finding) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(f)
	}
	word := map[int]string{0: "allowed", exitDisallowed: "disallowed", exitUnknown: "unknown"}[f.status()]
	line := fmt.Sprintf("%-10s %s", word, printable(f.URL))
	switch {
	case f.Line > 0 && f.Allow:
		line += fmt.Sprintf("  line %d: Allow: %s", f.Line, printable(f.Rule))
	case f.Line > 0:
		line += fmt.Sprintf("  line %d: Disallow: %s", f.Line, printable(f.Rule))
	case f.Reason != "":
		line += "  " + f.Reason
	}
	for _, part := range []struct{ name, value string }{
		{"group", f.Group}, {"agent", f.Agent}, {"robots.txt", f.Robots}, {"fetched", f.Fetched}, {"error", f.Error},
	} {
		if part.value != "" {
			line += "  " + part.name + " " + printable(part.value)
		}
	}
	if f.Asked > 0 {
		line += fmt.Sprintf("  crawl-delay %g s (asked: %g s)", f.Delay, f.Asked)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// printable gives a stranger's string as it is where it is harmless, else quoted.
func printable(s string) string {
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}
