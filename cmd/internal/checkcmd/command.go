// Package checkcmd is the command check. It says whether a client may request URLs, and why, by the robots.txt of their origins or
// by a file. It also looks for faults in a file, and judges cases from standard input. It sends no requests but those for robots.txt
// and tdmrep.json.
package checkcmd

import (
	"errors"
	"fmt"
	"os"

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

// Command returns the cobra command.
func Command() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check [flags] [URL...]",
		Short: "Say whether URLs may be fetched, and why",
		Long: `Say for each URL whether it may be fetched, and which rule decides. The decision is
the one that the proxy makes for a client without an entry in clients. The exit status
is 0 if all URLs are allowed, 1 if one is disallowed, or deferred (see hours in hosts),
and 2 if one cannot be decided.

With --robots, the command reads robots.txt from a file and fetches nothing from the
origins, so it does not know their tdmrep.json. It also prints likely mistakes in the
file, after the decisions, on standard error. Without a URL it prints only these, and
the exit status is 1 if there are any.

With --batch, the command reads cases from standard input, one JSON object a line,
and prints the decisions in the same order on standard output. It uses no network:

  {"robots": TEXT or "robots_b64": BASE64, "agent": TOKEN or "user_agent": HEADER, "url": URL}
  {"allow": false, "rule": "/x", "line": 3, "group": "foobot", "crawl_delay": 5}

For a case with user_agent, the decision has "agent": the product token that the
proxy takes from the header. A line that is not such a case gives {"error": TEXT}; a
blank line gives nothing. Only the path and the query of a URL matter, as they are
written and without dot segments. So the decision is the one that the proxy makes under
robots.readings: literal. Disallowed URLs and invalid lines do not change the exit
status: it is 0 if each line was answered, and 2 if reading the cases or writing the
answers failed.`,
		Example: `  robotsproxy check -A 'FooBot/1.0' https://example.com/page https://example.com/private
  robotsproxy check --robots robots.txt --json https://example.com/
  curl -s https://example.com/robots.txt | robotsproxy check --robots - https://example.com/
  robotsproxy check --robots robots.txt --dialect google
  robotsproxy check --batch < cases.jsonl > answers.jsonl`,
		Args: func(cmd *cobra.Command, urls []string) error { return f.usage(cmd, urls) },
		RunE: func(cmd *cobra.Command, urls []string) error {
			err := f.run(cmd, urls)
			if _, said := cli.ExitStatus(err); !said {
				// Status 1 means disallowed.
				err = &cli.StatusError{Status: exitUnknown, Err: err}
			}
			return err
		},
	}
	f.Add(cmd)
	cmd.Flags().StringVarP(&f.userAgent, "user-agent", "A", "", "User-Agent `HEADER` of the client")
	cmd.Flags().StringVar(&f.dialect, "dialect", "", "dialect `NAME`, in place of robots.dialect")
	cmd.Flags().StringVar(&f.robots, "robots", "",
		"use this robots.txt `FILE` in place of the origin's, and check it for mistakes; - is standard input")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object a line")
	cmd.Flags().BoolVar(&f.batch, "batch", false, "decide cases from standard input, one JSON object a line")
	cli.Offer(cmd, "dialect", config.DialectNames()...)
	return cmd
}

// usage returns an error for flags and arguments that do not go together.
func (f *checkFlags) usage(cmd *cobra.Command, urls []string) error {
	set := cmd.Flags().Changed
	switch {
	case f.batch && len(urls) > 0:
		return fmt.Errorf("--batch reads URLs from standard input and takes no arguments, got %q", urls[0])
	case f.batch && set("robots"):
		return errors.New("--batch and --robots exclude each other: each line of the input has its own robots.txt")
	case f.batch && set("user-agent"):
		return errors.New(`--batch and -A exclude each other: each line of the input has its own "agent" or "user_agent"`)
	case f.batch && f.json:
		return errors.New("--batch and --json exclude each other: --batch always prints JSON")
	// An unset variable of a script must not make the command fetch from the origins.
	case set("robots") && f.robots == "":
		return errors.New("--robots: empty file name")
	case f.File == "-" && (f.batch || f.robots == "-"):
		return errors.New("-c - excludes --batch and --robots -: both would read standard input")
	case !f.batch && len(urls) == 0 && f.robots == "":
		return errors.New("nothing to check: give a URL, --robots or --batch")
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
	if unused := daemon.UnusedProxy(cfg, os.Getenv); c.unreached && unused != "" {
		cli.Report(cmd.ErrOrStderr(), errors.New(unused))
	}
	if file != nil {
		lintBriefly(cmd.ErrOrStderr(), file, dialect, originOf(urls[0]))
	}
	if status != 0 {
		return cli.ExitError(status)
	}
	return nil
}

// settings returns the configuration after the flags were applied.
func (f *checkFlags) settings(cmd *cobra.Command) (config.Config, robots.Dialect, error) {
	cfg, err := f.Load()
	if err != nil {
		return cfg, robots.Dialect{}, err
	}
	wait := cfg.Pace.MaxWait
	cfg = daemon.ForOneUser(cfg)
	// check itself does not wait, so what it says is what serve would answer.
	cfg.Pace.MaxWait = wait
	if cmd.Flags().Changed("dialect") {
		cfg.Robots.Dialect = f.dialect
	}
	dialect, err := robots.DialectByName(cfg.Robots.Dialect)
	if err != nil {
		return cfg, dialect, err
	}
	if cmd.Flags().Changed("user-agent") {
		cfg.Identity.UserAgent = f.userAgent
		// Load has checked the rest of the configuration.
		if err := cfg.Check(); err != nil {
			return cfg, dialect, fmt.Errorf("-A: %w", err)
		}
	}
	return cfg, dialect, nil
}
