package identity

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/cmd/internal/version"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/signature"
)

const (
	fetchTimeout = 10 * time.Second

	// maxDirectory and maxHead are how many bytes are read of a key directory and of a captured request.
	maxDirectory, maxHead = 64 << 10, 64 << 10

	// maxSkew is the accepted difference of the clocks of the proxy and of a web server.
	maxSkew = 30 * time.Second
)

func verifyCommand() *cobra.Command {
	var f flags
	var at string
	var plain bool
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Verify the published key directory, or a captured request",
		Long: `Fetch the key directory at identity.sign.agent as a site would, and check that it has the
keys of the configuration.

With a FILE (- for standard input), verify the signature of a captured HTTP/1.1 request
head in it with these keys instead. Nothing is fetched then.

The exit status is 1 if the check has failed.`,
		Example: `  robotsproxy identity verify -c robotsproxy.yaml
  robotsproxy identity verify -c robotsproxy.yaml --at 2026-11-25T10:00:00Z head.txt`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && (at != "" || plain) {
				return cli.UsageErrorf("--at and --http are about the request in a FILE, which is missing")
			}
			cfg, agent, all, err := f.agent()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				return verifyRequest(cmd, args[0], at, plain, all)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			printer := cli.NewDiagnosisPrinter(cmd.OutOrStdout(), false, checkName)
			found := CheckDirectory(ctx, cfg, agent)
			found.Check = checkName
			if err := printer.Add(found); err != nil {
				return err
			}
			return printer.Verdict("identity verify")
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&at, "at", "", "`TIME` at which the signature of FILE has to be valid, as in 2026-11-25T10:00:00Z (default: now)")
	cmd.Flags().BoolVar(&plain, "http", false, "the request of FILE was sent without TLS")
	return cmd
}

// verifyRequest verifies a captured request.
func verifyRequest(cmd *cobra.Command, file, at string, plain bool, agents []daemon.Agent) error {
	now := time.Now()
	if at != "" {
		var err error
		if now, err = time.Parse(time.RFC3339, at); err != nil {
			return cli.UsageErrorf("--at %q: must be a time as in 2026-11-25T10:00:00Z", at)
		}
	}
	text, err := readHead(cmd.InOrStdin(), file)
	if err != nil {
		return err
	}
	r, err := parseHead(text, plain)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var keys []signature.PublicKey
	for _, a := range agents {
		keys = append(keys, a.Keys()...)
	}
	found, err := signature.Verify(r, keys, now)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(),
		"ok       the signature is valid\nkey      %s\nagent    %s\ncreated  %s\nexpires  %s\ncovers   %s\n",
		found.KeyID, humanize.Escape(found.Agent), found.Created.Format(time.RFC3339), found.Expires.Format(time.RFC3339),
		humanize.Escape(found.Covered))
	return err
}

// readHead returns the beginning of a file; "-" is standard input.
func readHead(in io.Reader, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(in, maxHead))
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: is a directory", file)
	}
	return cli.ReadFile(file, maxHead)
}

// parseHead parses the head of a request that was sent over TLS, unless it is plain. The empty line at its end may be missing.
func parseHead(text []byte, plain bool) (*http.Request, error) {
	text = append(bytes.TrimSpace(text), "\r\n\r\n"...)
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
	if err != nil {
		return nil, fmt.Errorf("not the head of an HTTP/1.1 request: %w", err)
	}
	r.URL.Scheme = "https"
	if plain {
		r.URL.Scheme = "http"
	}
	return r, nil
}

// checkName names the check of verify.
const checkName = "directory"

// CheckDirectory fetches the key directory of an agent as a site would, and checks that it has the agent's keys.
func CheckDirectory(ctx context.Context, cfg config.Config, a daemon.Agent) cli.Diagnosis {
	keys, date, err := fetchDirectory(ctx, cfg, a.URL)
	if err != nil {
		return cli.Fail("publish the key directory there (robotsproxy identity directory); until then sites cannot verify the signatures",
			"the key directory of %s cannot be used: %v", a.URL, err)
	}
	has := func(k *signature.Key) bool {
		return slices.ContainsFunc(keys, func(p signature.PublicKey) bool { return p.ID() == k.ID() })
	}
	skew := time.Until(date)
	switch {
	case !has(a.Key):
		return cli.Fail("write it again with robotsproxy identity directory, and publish it: sites cannot verify the signatures",
			"the key directory of %s does not have the key %s", a.URL, a.Key.ID())
	case a.Next != nil && !has(a.Next):
		return cli.Warn("write it again with robotsproxy identity directory, and publish it before the rotation",
			"the key directory of %s does not have the next key %s", a.URL, a.Next.ID())
	case !date.IsZero() && skew.Abs() > maxSkew:
		return cli.Warn("correct the clock that is wrong: sites refuse signatures that begin in the future or have expired",
			"the clock of the web server of %s differs by %s from this machine's", a.URL, skew.Abs().Round(time.Second))
	}
	return cli.OK("%s has the key %s", a.URL, a.Key.ID())
}

// fetchDirectory fetches the key directory of an agent, without redirects (draft-ietf-webbotauth-httpsig-protocol-01 5.5), and returns
// its keys and the time of the web server, which is zero if it is unknown.
func fetchDirectory(ctx context.Context, cfg config.Config, agent string) (keys []signature.PublicKey, date time.Time, err error) {
	u, err := signature.DirectoryURL(agent)
	if err != nil {
		return nil, date, fmt.Errorf("the URL %w", err)
	}
	out, err := daemon.NewEgress(cfg)
	if err != nil {
		return nil, date, err
	}
	defer out.Close()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, date, err
	}
	r.Header.Set("User-Agent", cmp.Or(cfg.Identity.UserAgent, version.Product()))
	r.Header.Set("Accept", signature.DirectoryType)
	resp, err := out.RoundTrip(r)
	if err != nil {
		return nil, date, errors.New(humanize.Error(err))
	}
	defer resp.Body.Close()
	// The Date of a web server without a clock is missing; date stays zero.
	date, _ = http.ParseTime(resp.Header.Get("Date"))
	if resp.StatusCode != http.StatusOK {
		return nil, date, fmt.Errorf("the web server answers %s, not 200 OK", strings.TrimSpace(resp.Status))
	}
	if err := checkMediaType(resp.Header.Get("Content-Type"), u); err != nil {
		return nil, date, err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxDirectory+1))
	switch {
	case err != nil:
		return nil, date, errors.New(humanize.Error(err))
	case len(text) > maxDirectory:
		return nil, date, fmt.Errorf("it has more than %d bytes", maxDirectory)
	}
	keys, err = signature.ParseDirectory(text, u)
	return keys, date, err
}

// checkMediaType returns an error for a directory at the well-known path with another media type.
func checkMediaType(contentType string, u *url.URL) error {
	// An invalid media type is taken for another one.
	media, _, _ := mime.ParseMediaType(contentType)
	if u.Path == signature.DirectoryPath && media != signature.DirectoryType {
		return fmt.Errorf("its media type is %q, but must be %s", contentType, signature.DirectoryType)
	}
	return nil
}
