package auditcmd

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/cmd/internal/version"
	"robotsproxy/policy"
	"robotsproxy/policy/audit/bundle"
	auditreport "robotsproxy/policy/audit/report"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

func auditReportCommand() *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report [flags] [FILE...]",
		Short: "Summarise the audit by client, site and rule, as text, CSV, JSON or HTML",
		Long: `Summarise the audit. By client, site and rule, the report shows which requests were
allowed, disallowed (by robots.txt or by the operator), deferred (the client may send
them later) and failed (because of the site, the network, the client or the proxy),
and how long requests waited. It also shows the exceptions with their reasons, the
times without a usable robots.txt, and whether the hash chain holds. --format html
makes one file that loads nothing else.

--since and --until take a time (2026-11-21T10:00:00Z), a day (2026-11-21: its
beginning, UTC) or a time ago (24h, 7d). With --file -, the command reads one file
from standard input. If there are several files, such as those of the replicas of a
fleet, each has its own chain; the report covers all of them, and has a table of
replicas. If a chain is broken, the report says where, and the exit status is 1.`,
		Example: `  robotsproxy audit report --since 7d
  robotsproxy audit report --run last -o requests.csv
  robotsproxy audit report /audits/*/audit.jsonl -o fleet.html
  robotsproxy audit report --since 2026-11-01 --until 2026-12-01 -o november.html`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.report(cmd.InOrStdin(), cmd.OutOrStdout(), time.Now())
		},
	}
	f.add(cmd)
	f.anyFiles(cmd)
	return cmd
}

// reportFlags are the flags of audit report.
type reportFlags struct {
	auditFlags
	requests     requestFlags
	since, until string
	format, out  string
	top          int
}

func (f *reportFlags) add(cmd *cobra.Command) {
	f.auditFlags.add(cmd)
	cmd.Flags().StringVar(&f.since, "since", "", "only requests that arrived at this `TIME` or later")
	cmd.Flags().StringVar(&f.until, "until", "", "only requests that arrived before this `TIME`")
	f.requests.add(cmd)
	cmd.Flags().StringVar(&f.format, "format", "",
		"`FORMAT`: "+cli.OneOf(formats)+" (default: by the extension of -o, "+reportExtensions+"; text if there is none)")
	cli.Offer(cmd, "format", formats...)
	cmd.Flags().StringVarP(&f.out, "output", "o", "", "write the report to `FILE` instead of standard output")
	cmd.Flags().IntVar(&f.top, "top", 0,
		fmt.Sprintf("show at most `ROWS` of each table (default %d in text, %d in html); 0 shows all", TopOfText, TopOfPage))
}

// formats are those of a report.
var formats = []string{"text", "csv", "json", "html"}

// FormatOf returns the format of a report that the extension of a file's name means.
func FormatOf(file string) (string, error) {
	ext := strings.TrimPrefix(strings.ToLower(filepath.Ext(file)), ".")
	if ext == "txt" {
		ext = "text"
	}
	if !slices.Contains(formats, ext) {
		return "", fmt.Errorf("the file name must end in %s, got %s", reportExtensions, humanize.Printable(file))
	}
	return ext, nil
}

// reportExtensions are the extensions for FormatOf.
const reportExtensions = ".html, .json, .csv or .txt"

// How many rows a table has without --top.
const (
	TopOfText = 20
	TopOfPage = 100
)

// most returns the maximum number of rows of each table.
func (f *reportFlags) most(usual int) int {
	if f.Flags.Changed("top") {
		return f.top
	}
	return usual
}

// ReportWriter returns a function that writes a report in a format. text and page are the maximum
// rows of each table in the formats text and html.
func ReportWriter(format string, text, page int) (func(io.Writer, *auditreport.Report) error, error) {
	switch format {
	case "text":
		return func(w io.Writer, r *auditreport.Report) error { return r.Text(w, text) }, nil
	case "csv":
		return func(w io.Writer, r *auditreport.Report) error { return r.CSV(w) }, nil
	case "json":
		return func(w io.Writer, r *auditreport.Report) error { return cli.WriteJSON(w, r) }, nil
	case "html":
		return func(w io.Writer, r *auditreport.Report) error { return r.HTML(w, page) }, nil
	}
	return nil, cli.UsageErrorf("--format %q: use %s", format, cli.OneOf(formats))
}

// report reads the audits and writes the report.
func (f *reportFlags) report(in io.Reader, out io.Writer, now time.Time) error {
	if !f.Flags.Changed("format") {
		f.format = "text"
		if filepath.Ext(f.out) != "" {
			var err error
			if f.format, err = FormatOf(f.out); err != nil {
				return cli.UsageErrorf("-o: %w (for another name, choose the format with --format)", err)
			}
		}
	}
	write, err := ReportWriter(f.format, f.most(TopOfText), f.most(TopOfPage))
	if err != nil {
		return err
	}
	options, err := f.options(now)
	if err != nil {
		return err
	}
	if options.Quotas, options.Hosts, err = f.agreed(); err != nil {
		return err
	}
	if f.out == "-" {
		f.out = ""
	}
	if f.format == "html" && f.out == "" && cli.IsTerminal(out) {
		return cli.UsageErrorf("--format html: standard output is a terminal; name a file with -o")
	}
	if slices.ContainsFunc(f.paths, isBundle) {
		return f.reportBundle(options, now, out, write)
	}
	all, err := f.openAll(in)
	if err != nil {
		return err
	}
	defer closeAll(all)
	return WriteReport(all, options, now, f.out, out, write)
}

// agreed returns the quotas of the clients of the configuration, by the names that the audit has for them, and the entries of hosts.
func (f *reportFlags) agreed() (map[string]policy.Quota, []policy.Host, error) {
	if slices.ContainsFunc(f.paths, isBundle) {
		return nil, nil, nil
	}
	cfg, err := f.Load()
	if err != nil {
		return nil, nil, err
	}
	all := map[string]policy.Quota{}
	for _, c := range cfg.Clients {
		quota := policy.Quota{Requests: int64(c.Quota.RequestsPerDay), Bytes: int64(c.Quota.BytesPerDay)}
		if quota == (policy.Quota{}) {
			continue
		}
		// A name that the audits do not have in one form has no row.
		if name, err := f.clientName(c.Name); err == nil {
			all[name] = quota
		}
	}
	return all, daemon.Hosts(cfg), nil
}

// reportBundle verifies the bundle that the flags name, and writes the report of its lines.
func (f *reportFlags) reportBundle(
	o auditreport.Options, now time.Time, out io.Writer, write func(io.Writer, *auditreport.Report) error,
) error {
	if len(f.paths) > 1 {
		return cli.UsageErrorf("name one bundle alone")
	}
	file, info, err := openBundle(f.paths[0])
	if err != nil {
		return err
	}
	defer file.Close()
	lines, err := bundle.Lines(file, info.Size())
	if err == nil {
		_, err = (&verification{}).verifyBundle(f.paths[0], &knownCheckpoints{})
	}
	if err != nil {
		return err
	}
	o.Partial = true
	return WriteReport([]auditreport.Trail{{Lines: trail.NewReader(f.paths[0], lines)}}, o, now, f.out, out, write)
}

// WriteReport sums trails up and writes the report into file, or to out if file is "". It writes the
// report even if a chain is broken, which is an error.
func WriteReport(
	all []auditreport.Trail, o auditreport.Options, now time.Time,
	file string, out io.Writer, write func(io.Writer, *auditreport.Report) error,
) (err error) {
	sum := auditreport.New(o)
	found := sum.ReadAll(all)
	info, _ := debug.ReadBuildInfo()
	number, _ := version.Of(info)
	r := sum.Report(now, number)
	if fault := r.Fault(); fault != "" && found == nil {
		found = fmt.Errorf("the chain of the audit is broken: %s", fault)
	}
	if file == "" {
		err = write(out, r)
	} else {
		err = cli.ReplaceFile(file, func(w io.Writer) error { return write(w, r) })
	}
	return errors.Join(found, err)
}

// options returns the options of the report from the flags.
func (f *reportFlags) options(now time.Time) (auditreport.Options, error) {
	if err := errors.Join(NotEmpty(f.Flags, "since", "until", "output"), f.requests.read(&f.auditFlags)); err != nil {
		return auditreport.Options{}, err
	}
	switch {
	case f.top < 0:
		return auditreport.Options{}, cli.UsageErrorf("--top must not be negative, got %d", f.top)
	case f.Flags.Changed("top") && f.format != "text" && f.format != "html":
		return auditreport.Options{}, cli.UsageErrorf("--top applies to text and html only: %s has all rows", f.format)
	}
	o := auditreport.Options{Client: f.requests.client, Host: f.requests.host, Labels: f.requests.labels}
	if f.requests.hosts != nil {
		o.MatchHost = f.requests.hosts.Has
	}
	var err error
	if o.Since, err = moment(f.since, now); err != nil {
		return o, cli.UsageErrorf("--since: %w", err)
	}
	if o.Until, err = moment(f.until, now); err != nil {
		return o, cli.UsageErrorf("--until: %w", err)
	}
	if !o.Since.IsZero() && !o.Until.IsZero() && !o.Since.Before(o.Until) {
		return o, cli.UsageErrorf("--until must be later than --since: " +
			"a day stands for its beginning, so for one whole day give the next day to --until")
	}
	return o, nil
}

// moment reads a time, a day, or how long ago; "" is the zero time.
func moment(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	rest := s
	var ago time.Duration
	if days, after, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return time.Time{}, errMoment(s)
		}
		ago, rest = time.Duration(n)*24*time.Hour, after
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 {
			return time.Time{}, errMoment(s)
		}
		ago += d
	}
	return now.Add(-ago).UTC(), nil
}

func errMoment(s string) error {
	return fmt.Errorf("use a time (2026-11-21T10:00:00Z), a day (2026-11-21) or a time ago (24h, 7d), got %q", s)
}
