package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/socket"
	"robotsproxy/robots"
)

// PauseCommand returns the command pause.
func PauseCommand() *cobra.Command {
	var p pauseFlags
	var reason, until string
	cmd := &cobra.Command{
		Use:   "pause [HOST]",
		Short: "Pause a host, or all hosts, at a running proxy",
		Long: `Make a running proxy refuse all requests to a host, or without HOST to every host:
with status 503, reason paused and Retry-After. Requests that wait are refused too,
and those that are under way may finish. The pause outlasts restarts and applies to
all replicas that share a store. A pause of a paused host replaces the one before.

The command asks the proxy by its admin listener. It takes the address and the token
from the configuration of the proxy.`,
		Example: `  robotsproxy pause example.com --reason "they asked us to wait" --until 48h
  robotsproxy pause --reason "too many complaints" -c /etc/robotsproxy.yaml`,
		Args: optionalHost,
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return cli.UsageErrorf("--reason: required, it is recorded in the audit and shown to clients")
			}
			if until == "" && cmd.Flags().Changed("until") {
				return cli.UsageErrorf("--until: empty time")
			}
			var reply struct {
				Until time.Time `json:"until"`
			}
			host, err := p.call(cmd, http.MethodPost, args, map[string]string{"reason": reason, "until": until}, &reply)
			if err != nil {
				return err
			}
			end := ""
			if !reply.Until.IsZero() {
				end = " until " + reply.Until.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "requests to %s are paused%s\n", cmp.Or(host, "all hosts"), end)
			return nil
		},
	}
	p.add(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that says why, in one line; required")
	cmd.Flags().StringVar(&until, "until", "",
		"`TIME` when the pause ends, as 2027-01-31T18:00:00Z, or the duration until then, as 90m (default: when it is ended)")
	return cmd
}

// ResumeCommand returns the command resume.
func ResumeCommand() *cobra.Command {
	var p pauseFlags
	cmd := &cobra.Command{
		Use:   "resume [HOST]",
		Short: "End the pause of a host, or of all hosts, at a running proxy",
		Long: `End what robotsproxy pause has begun: the pause of a host, or without HOST that of
all hosts. A host that was paused on its own stays paused after the end of the pause
of all hosts.`,
		Example: `  robotsproxy resume example.com
  robotsproxy resume -c /etc/robotsproxy.yaml`,
		Args: optionalHost,
		RunE: func(cmd *cobra.Command, args []string) error {
			var reply resumeReply
			host, err := p.call(cmd, http.MethodDelete, args, map[string]string{}, &reply)
			if err != nil {
				return err
			}
			what := cmp.Or(host, "all hosts")
			if !reply.Ended {
				return fmt.Errorf("resume: there is no pause of %s%s", what, reply.left(host))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the pause of %s has ended%s\n", what, reply.left(host))
			return nil
		},
	}
	p.add(cmd)
	return cmd
}

// A resumeReply is the answer to the end of a pause.
type resumeReply struct {
	Ended bool `json:"ended"`

	// Left are the pauses that hold nevertheless.
	Left []struct {
		Host string `json:"host"`
	} `json:"still_paused"`
}

// left says what is still paused, after a comma; "": nothing.
func (r *resumeReply) left(host string) string {
	switch n := len(r.Left); {
	case n == 0:
		return ""
	case host != "":
		return ", but all hosts are paused"
	case n == 1:
		return ", but " + humanize.Escape(r.Left[0].Host) + " is paused on its own"
	default:
		return fmt.Sprintf(", but %s and %s are paused on their own", humanize.Escape(r.Left[0].Host), humanize.Count(n-1, "other host"))
	}
}

// optionalHost accepts no argument, or one that is not empty: an unset variable of a script must not select all hosts.
func optionalHost(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && args[0] == "" {
		return errors.New("empty host: without an argument, the command is for all hosts")
	}
	return cobra.MaximumNArgs(1)(cmd, args)
}

// pauseFlags are the flags of pause and resume.
type pauseFlags struct {
	cli.ConfigFlags

	// admin is the address of the admin listener; "": the configured one.
	admin string
}

func (p *pauseFlags) add(cmd *cobra.Command) {
	p.Add(cmd)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.Flags().StringVar(&p.admin, "admin", "", "`ADDR` of the proxy's admin listener, in place of admin.listen")
}

// maxUserName is how many bytes of the name of a user the proxy is told.
const maxUserName = 100

// pauseTimeout is how long the proxy may take, with the time in which a disk gets the pause.
const pauseTimeout = syncLimit + 5*time.Second

// maxPauseReply bounds what is read of the proxy's answer, in bytes: all pauses.
const maxPauseReply = 4 << 20

// call calls the endpoint of the pause of the host in args, or of all hosts, and decodes the answer into reply. It adds to members the
// name of the user. It returns the host; "": all.
func (p *pauseFlags) call(cmd *cobra.Command, method string, args []string, members map[string]string, reply any) (host string, err error) {
	path := "/api/v1/pause"
	if len(args) > 0 {
		if host, err = robots.ParseHost(args[0]); err != nil {
			return "", cli.UsageErrorf("HOST must be a name or an address, without scheme, port or pattern, got %q", args[0])
		}
		path = "/api/v1/hosts/" + url.PathEscape(host) + "/pause"
	}
	cfg, err := p.Load()
	if err != nil {
		return host, err
	}
	if p.admin == "" && cmd.Flags().Changed("admin") {
		return host, cli.UsageErrorf("--admin: empty address")
	}
	if hint := config.AddressHint(p.admin); hint != "" {
		return host, cli.UsageErrorf("--admin: %q %s", p.admin, hint)
	}
	at := cmp.Or(p.admin, cfg.Admin.Listen)
	if at == "" {
		return host, fmt.Errorf("%s: admin.listen is off, and the command needs it", cmd.Name())
	}
	if u, err := user.Current(); err == nil {
		members["by"] = humanize.Cut(humanize.Escape(u.Username), maxUserName)
	}
	if err := callAdmin(cmd.Context(), at, cfg.Admin.Token, method, path, members, reply); err != nil {
		return host, fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	return host, nil
}

// callAdmin calls an endpoint of the API of a running proxy with a JSON body, and decodes the answer into reply.
func callAdmin(ctx context.Context, at, token, method, path string, body, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+at+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := ownClient().Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			// The error of url.Error names the URL, which says nothing to the user.
			err = e.Err
		}
		if errors.Is(err, socket.ECONNREFUSED) {
			return fmt.Errorf("nothing listens at %s: start robotsproxy serve, or name its address with -c FILE or --admin", at)
		}
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxPauseReply))
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("%s requires the token of the proxy, name its configuration with -c FILE", at)
	}
	if resp.StatusCode != http.StatusOK {
		var problem struct{ Detail string }
		// Another server may listen there.
		_ = json.Unmarshal(answer, &problem)
		return fmt.Errorf("%s answers: %s", at, cmp.Or(problem.Detail, resp.Status))
	}
	if err := json.Unmarshal(answer, reply); err != nil {
		return fmt.Errorf("%s answers with something else than robotsproxy: %w", at, err)
	}
	return nil
}
