// Package checkcmd is the command check. It says whether a client may request URLs, and why, by the
// robots.txt of their origins or by a file; it looks for faults in a file; and it judges cases from
// standard input. It sends no request but those for robots.txt.
package checkcmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/robots"
)

type checkFlags struct {
	cli.ConfigFlags
	userAgent, dialect, robots string
	json, batch                bool
}

// Command gives the cobra command.
func Command() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check [flags] [URL...]",
		Short: "Say whether addresses may be fetched, and why",
		Long: `Say whether addresses may be fetched, and on what that rests, by the same
judgement that the proxy makes for a client that has no entry in clients. The
exit status is 0 when all are allowed, 1 when one is disallowed, 2 when it
cannot be told of one, whatever the others are.

With --robots a file is asked instead of the origins, and what is likely wrong
with it is said as well: after the answers, on standard error. Without a URL
that is all, and the exit status is 1 when there is something to say.

With --batch cases are read from standard input, a JSON object a line, and
answered in their order on standard output, without any network:

  {"robots": TEXT or "robots_b64": BASE64, "agent": TOKEN or "user_agent": HEADER, "url": URL}
  {"allow": false, "rule": "/x", "line": 3, "group": "foobot", "crawl_delay": 5}

An answer to a user_agent names the token it was taken for as "agent". A line
that is no such case is answered {"error": TEXT}; a blank one is passed over. Of
a URL only path and query count, as they stand. Verdicts and errors of lines
are data: the exit status is 0 when each line was answered, 2 when the cases
could not be read or the answers not be written.`,
		Example: `  robotsproxy check -A 'FooBot/1.0' https://example.com/page https://example.com/private
  robotsproxy check --robots robots.txt --json https://example.com/
  curl -s https://example.com/robots.txt | robotsproxy check --robots - https://example.com/
  robotsproxy check --robots robots.txt --dialect google
  robotsproxy check --batch < cases.jsonl > answers.jsonl`,
		Args: func(cmd *cobra.Command, urls []string) error { return f.usage(cmd, urls) },
		RunE: func(cmd *cobra.Command, urls []string) error {
			err := f.run(cmd, urls)
			if _, said := cli.ExitStatus(err); !said {
				err = &cli.StatusError{Status: exitUnknown, Err: err} // status 1 means disallowed
			}
			return err
		},
	}
	f.Add(cmd)
	cmd.Flags().StringVarP(&f.userAgent, "user-agent", "A", "", "a whole User-Agent `HEADER`: who asks")
	cmd.Flags().StringVar(&f.dialect, "dialect", "", "how robots.txt is read, by `NAME`, instead of the configuration's")
	cmd.Flags().StringVar(&f.robots, "robots", "", "a `FILE` to judge by instead of the origin's robots.txt, and to look for faults in; - for standard input")
	cmd.Flags().BoolVar(&f.json, "json", false, "one JSON object a line")
	cmd.Flags().BoolVar(&f.batch, "batch", false, "judge cases from standard input, a JSON object a line")
	var names []string
	for _, d := range robots.Dialects() {
		names = append(names, d.Name)
	}
	cli.Offer(cmd, "dialect", names...)
	return cmd
}

// usage returns an error for flags and arguments that do not go together.
func (f *checkFlags) usage(cmd *cobra.Command, urls []string) error {
	set := cmd.Flags().Changed
	switch {
	case f.batch && len(urls) > 0:
		return fmt.Errorf("--batch takes its addresses from standard input, %q is one", urls[0])
	case f.batch && set("robots"):
		return errors.New("--batch has a robots.txt in each of its lines, --robots names another")
	case f.batch && set("user-agent"):
		return errors.New(`--batch has an "agent" or "user_agent" in each of its lines, -A names another`)
	case f.batch && f.json:
		return errors.New("--batch answers in JSON of its own, --json asks for another")
	case set("robots") && f.robots == "": // an unset variable of a script must not ask the origins
		return errors.New("--robots: the name of the file is empty")
	case !f.batch && len(urls) == 0 && f.robots == "":
		return errors.New("nothing to check: no URL, no --robots, no --batch")
	}
	return nil
}

// run runs the command. Its error may be a cli.ExitError.
func (f *checkFlags) run(cmd *cobra.Command, urls []string) error {
	cfg, dialect, err := f.settings(cmd)
	if err != nil {
		return err
	}
	if f.batch {
		return checkBatch(cfg, dialect, cmd.InOrStdin(), cmd.OutOrStdout())
	}
	var file *File
	if f.robots != "" {
		if file, err = readFile(f.robots, cmd.InOrStdin()); err != nil {
			return err
		}
	}
	if len(urls) == 0 {
		return lint(cmd.OutOrStdout(), file, dialect, f.json)
	}
	c, done, err := newChecker(cfg, file)
	if err != nil {
		return err
	}
	defer done()
	status, err := c.checkAll(cmd.Context(), cmd.OutOrStdout(), urls, f.json)
	if err != nil {
		return err
	}
	if file != nil {
		lintBriefly(cmd.ErrOrStderr(), file, dialect)
	}
	if status != 0 {
		return cli.ExitError(status)
	}
	return nil
}

// settings gives the configuration, with the flags in place of what it says.
func (f *checkFlags) settings(cmd *cobra.Command) (config.Config, robots.Dialect, error) {
	cfg, err := f.Load()
	if err != nil {
		return cfg, robots.Dialect{}, err
	}
	cfg = daemon.ForOneUser(cfg)
	if cmd.Flags().Changed("dialect") {
		cfg.Robots.Dialect = f.dialect
	}
	if cmd.Flags().Changed("user-agent") {
		cfg.Identity.UserAgent = f.userAgent
		if err := cfg.Check(); err != nil { // Load has checked the rest
			return cfg, robots.Dialect{}, fmt.Errorf("-A: %w", err)
		}
	}
	dialect, err := robots.DialectByName(cfg.Robots.Dialect)
	if err != nil {
		return cfg, dialect, err
	}
	return cfg, dialect, cfg.Check()
}
