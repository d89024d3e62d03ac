package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/confine"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/explain/humanize"
)

// maxLocalPorts is how many ports --allow-local takes.
const maxLocalPorts = 64

// confineFlags are the flags that confine the command.
type confineFlags struct {
	on      bool
	sockets []string
	ports   []string
	user    string
}

func (f *confineFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.on, "confine", false, "let the command reach the network through the proxy alone (Linux)")
	flags.StringArrayVar(&f.sockets, "allow-socket", nil, "with --confine: let the command see the Unix socket `PATH` (repeatable)")
	flags.StringArrayVar(&f.ports, "allow-local", nil,
		"with --confine: let the command reach the TCP `PORT` of this machine's loopback (repeatable)")
	flags.StringVar(&f.user, "user", "", "with --confine, as root: run the command as the user `NAME`")
}

// check checks the flags and returns the options for confine, without the command.
func (f *confineFlags) check(cmd *cobra.Command) (o confine.Options, err error) {
	for _, name := range []string{"allow-socket", "allow-local", "user"} {
		if cmd.Flags().Changed(name) && !f.on {
			return o, cli.UsageErrorf("--%s needs --confine", name)
		}
	}
	for _, path := range f.sockets {
		info, err := os.Stat(path)
		if err != nil {
			return o, fmt.Errorf("--allow-socket: %w", err)
		}
		if info.Mode().Type() != fs.ModeSocket {
			return o, fmt.Errorf("--allow-socket: %s is not a Unix socket", humanize.Printable(path))
		}
		if path, err = filepath.Abs(path); err != nil {
			return o, err
		}
		o.ShowSocket = append(o.ShowSocket, path)
	}
	for _, text := range f.ports {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return o, cli.UsageErrorf("--allow-local %s: must be a port from 1 to 65535", humanize.Printable(text))
		}
		if !slices.Contains(o.AllowLocal, uint16(port)) {
			o.AllowLocal = append(o.AllowLocal, uint16(port))
		}
	}
	if len(o.AllowLocal) > maxLocalPorts {
		return o, cli.UsageErrorf("--allow-local: at most %d ports, got %d", maxLocalPorts, len(o.AllowLocal))
	}
	if !cmd.Flags().Changed("user") {
		return o, nil
	}
	if os.Geteuid() != 0 {
		return o, errors.New("--user: only root may run a command as another user")
	}
	if o.User, err = user.Lookup(f.user); err != nil {
		return o, fmt.Errorf("--user: %w", err)
	}
	return o, nil
}

// A confinement is what confines the command of a run. The nil confinement confines nothing.
type confinement struct {
	*confine.Confinement

	// user is whom the command runs as; nil: the user of this process.
	user *user.User

	// log is that of the run, from resources on.
	log *slog.Logger
}

// newConfinement makes the namespaces for cmd; nil without --confine.
func (f *confineFlags) newConfinement(o confine.Options, cmd *exec.Cmd) (*confinement, error) {
	if !f.on {
		return nil, nil
	}
	o.Command = cmd
	c, err := confine.Start(o)
	if err != nil {
		return nil, err
	}
	return &confinement{Confinement: c, user: o.User}, nil
}

// resources returns what the daemon of the run has for itself. The confinement writes to its log from now on.
func (c *confinement) resources(dir string, log *slog.Logger) daemon.Resources {
	if c == nil {
		return daemon.Resources{Dir: dir}
	}
	c.log = log
	return daemon.Resources{Dir: dir, Listener: c.Proxy(), Transparent: c.Transparent(), NameOf: c.NameOf}
}

// filesDir makes the directory for the files of the run, below that of the run, and returns it and
// what the command sees in its place.
func (c *confinement) filesDir(dir string) (real, seen string, err error) {
	if c == nil {
		return dir, dir, nil
	}
	real = filepath.Join(dir, "confined")
	if err := os.Mkdir(real, 0o700); err != nil {
		return "", "", err
	}
	return real, confine.InsideDir, writeWget2rc(filepath.Join(real, wget2rcName))
}

// removeFiles deletes the files of the run, which are useless once the proxy has ended.
func (c *confinement) removeFiles(real string) {
	if c == nil {
		filesIn(real).remove()
		return
	}
	// What cannot be removed does no harm.
	os.RemoveAll(real)
}

// wget2Variable names the system's configuration file of wget2, and wget2rcName is that file within InsideDir.
const (
	wget2Variable = "SYSTEM_WGET2RC"
	wget2rcName   = "wget2rc"
)

// writeWget2rc writes the system's configuration of wget2 into a file, but without a proxy: for HTTPS, wget2 takes the
// proxy for the origin.
func writeWget2rc(file string) error {
	// The text is nil on most systems, which do not have the file.
	text, _ := cli.ReadFile(cmp.Or(os.Getenv(wget2Variable), "/etc/wget2rc"), maxWgetrc)
	return os.WriteFile(file, append(text, "\nproxy = off\n"...), 0o600)
}

// getenv returns the function by which the user's own settings are found. Those of root are not for
// another user.
func (c *confinement) getenv(name string) string {
	if c != nil && c.user != nil && (name == "HOME" || name == "WGETRC") {
		return ""
	}
	return os.Getenv(name)
}

// environment returns the variables of the command, as far as they do not concern the proxy.
func (c *confinement) environment() []string {
	env := os.Environ()
	if c == nil {
		return env
	}
	own := map[string]string{wget2Variable: filepath.Join(confine.InsideDir, wget2rcName)}
	if c.user == nil {
		return setVariables(env, own)
	}
	own["HOME"], own["USER"], own["LOGNAME"] = c.user.HomeDir, c.user.Username, c.user.Username
	return setVariables(env, own, "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
}

// child returns cmd as a child with variables, and files in dir.
func (c *confinement) child(cmd *exec.Cmd, dir string, t confine.Trust, env []string) child {
	if c == nil {
		cmd.Env = env
		return plainChild(cmd)
	}
	return child{cmd.Args[0], c.Command(), func() error {
		if err := c.giveFiles(dir); err != nil {
			return err
		}
		notes, err := c.Run(dir, t, env)
		if e, ok := errors.AsType[*fs.PathError](err); ok && e.Op == "exec" {
			return startError(cmd.Args[0], e)
		}
		if err == nil {
			c.log.Debug("command confined", "trusted_by", notes)
		}
		return err
	}}
}

// giveFiles makes the files in dir those of the user that the command runs as.
func (c *confinement) giveFiles(dir string) error {
	if c.user == nil {
		return nil
	}
	uid, noUID := strconv.Atoi(c.user.Uid)
	gid, noGID := strconv.Atoi(c.user.Gid)
	if err := errors.Join(noUID, noGID); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	})
}

// serve answers the command's DNS queries until stop is called, which returns when that has ended.
func (c *confinement) serve() (stop func()) {
	if c == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := c.Serve(ctx); err != nil {
			c.log.Error("resolver of the confined command failed", "err", err)
		}
	})
	return func() {
		cancel()
		serving.Wait()
	}
}

// close ends what confines the command.
func (c *confinement) close() {
	if c != nil {
		c.Close()
	}
}
