package castore

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
)

// These are the names of the subcommands that change trust stores.
const (
	installVerb   = "install"
	uninstallVerb = "uninstall"
)

type installFlags struct {
	cli.ConfigFlags
	java, browsers, noSystem, previous bool
}

func (f *installFlags) add(cmd *cobra.Command) {
	f.ConfigFlags.Add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.java, "java", false, "also change the trust store of Java (JAVA_HOME, or the java on PATH)")
	const usage = "also change the databases of Firefox and Chromium (needs certutil, of libnss3-tools)"
	flags.BoolVar(&f.browsers, "browsers", false, usage)
	// --firefox is the name of --browsers in earlier versions.
	flags.BoolVar(&f.browsers, "firefox", false, usage)
	flags.Lookup("firefox").Hidden = true
	flags.BoolVar(&f.noSystem, "no-system", false, "do not change the system's store")
}

func caInstallCommand() *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:   installVerb,
		Short: "Make this machine trust the CA",
		Long: `Make this machine trust the CA, and the one that will sign next (ca next): add them to
the system's trust store, which most programs read, and on request to those of Java,
Firefox and Chromium. A store that has the CA already stays unchanged. Only root can
change the system's store; for other users, the command prints what root must run.
Programs with their own root certificates (Node, Python's requests) also need a variable:
robotsproxy doctor names it.

--browsers changes the databases of your own user: run it without sudo, and restart
the browsers. It makes the database of Chromium if there is none. A Firefox has one
after its first start.`,
		Example: `  sudo robotsproxy ca install --state "$HOME/.local/state/robotsproxy"
  robotsproxy ca install --browsers --no-system`,
		Args: cli.NoArgs,
		RunE: f.RunE(func(cmd *cobra.Command, cfg config.Config) error {
			certs, err := rootCertificates(cfg)
			if err != nil {
				return err
			}
			return newStores(&f, cfg, installVerb).change(cmd.OutOrStdout(), certs)
		}),
	}
	f.add(cmd)
	return cmd
}

func caUninstallCommand() *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:   uninstallVerb,
		Short: "Make this machine stop trusting the CA",
		Long: `Remove the CA, and the CAs that ca rotate has replaced, from the trust stores that ca
install has added them to. Other certificates stay, also those of other installations
of robotsproxy. The files of the CA stay where they are.`,
		Example: `  sudo robotsproxy ca uninstall --state "$HOME/.local/state/robotsproxy"
  robotsproxy ca rotate && robotsproxy ca install && robotsproxy ca uninstall --previous`,
		Args: cli.NoArgs,
		RunE: f.RunE(func(cmd *cobra.Command, cfg config.Config) error {
			certs, err := installedCertificates(cfg, f.previous)
			if err != nil {
				return err
			}
			return newStores(&f, cfg, uninstallVerb).change(cmd.OutOrStdout(), certs)
		}),
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.previous, "previous", false, "remove only the CAs that ca rotate has replaced")
	return cmd
}

// rootCertificates returns the certificates that make a machine trust the CA, and the one that will sign next, if there is one.
func rootCertificates(cfg config.Config) ([]*x509.Certificate, error) {
	ca, err := rootCertificate(cfg)
	if err != nil {
		return nil, err
	}
	next, err := nextInUse(cfg)
	if err != nil || next == nil || next.Equal(ca) {
		return []*x509.Certificate{ca}, err
	}
	return []*x509.Certificate{ca, next}, nil
}

// rootCertificate returns the certificate that makes a machine trust the CA. It makes the CA if there is none, but not under sudo:
// root's state directory is not the user's.
func rootCertificate(cfg config.Config) (*x509.Certificate, error) {
	if user := os.Getenv("SUDO_USER"); user != "" && cfg.TLS.CACert == "" {
		file, err := CAFile(cfg)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			const why = "ca install: no CA in %s, root's own state directory: name the state directory of %s with --state"
			return nil, fmt.Errorf(why, filepath.Dir(file), user)
		}
	}
	a, file, err := usedCA(cfg)
	if err != nil {
		return nil, err
	}
	for _, c := range Certificates(a.CertPEM()) {
		if c.CheckSignatureFrom(c) == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("ca install: %s does not contain the root CA that signed it: install that CA", file)
}

// installedCertificates returns the certificates that ca install may have installed, even expired ones, or only those that ca rotate
// has replaced.
func installedCertificates(cfg config.Config, onlyPrevious bool) ([]*x509.Certificate, error) {
	previous, _, err := replacedCAs(cfg)
	if err != nil || onlyPrevious {
		return previous, err
	}
	next, err := nextInUse(cfg)
	if err != nil {
		return nil, err
	}
	if next != nil {
		previous = append(previous, next)
	}
	file, err := CAFile(cfg)
	if err != nil {
		return nil, err
	}
	text, err := ReadRoots(file)
	if errors.Is(err, fs.ErrNotExist) && len(previous) > 0 {
		return previous, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ca uninstall: %w", err)
	}
	roots := slices.DeleteFunc(Certificates(text), func(c *x509.Certificate) bool { return c.CheckSignatureFrom(c) != nil })
	if len(roots) == 0 {
		return nil, fmt.Errorf("ca uninstall: no CA in %s", file)
	}
	return append(roots[:1:1], previous...), nil
}

// sudoFlags returns the flags with which root finds the same CA and changes the same stores. Without --state, root would use its own
// state directory.
func (f *installFlags) sudoFlags(cfg config.Config) string {
	flags := f.Args()
	if cfg.StateDir == "" && cfg.TLS.CACert == "" {
		if state, err := cfg.State(os.Getenv); err == nil {
			flags += " --state " + cli.ShellQuote(state)
		}
	}
	if f.java {
		flags += " --java"
	}
	if f.noSystem {
		flags += " --no-system"
	}
	if f.previous {
		flags += " --previous"
	}
	return flags
}

// newStores returns the trust stores that the flags select, for a subcommand.
func newStores(f *installFlags, cfg config.Config, verb string) *stores {
	// On other systems the library calls sudo itself.
	s := &stores{canWriteSystem: os.Geteuid() == 0 || runtime.GOOS != "linux"}
	for _, t := range []struct {
		selected           bool
		name               string
		install, uninstall func(*x509.Certificate) (cli.Diagnosis, error)
	}{
		{!f.noSystem, "system", s.installInSystem, s.uninstallFromSystem},
		{f.java, "java", installInJava, uninstallFromJava},
		{f.browsers, browserStore, installInBrowsers, uninstallFromBrowsers},
	} {
		switch {
		case t.selected && verb == uninstallVerb:
			s.list = append(s.list, trustStore{t.name, t.uninstall})
		case t.selected:
			s.list = append(s.list, trustStore{t.name, t.install})
		}
	}
	program, err := os.Executable()
	if err != nil {
		program = "robotsproxy"
	}
	s.sudoCommand = "sudo " + cli.ShellQuote(program) + " ca " + verb + f.sudoFlags(cfg)
	s.startFirefox = "start Firefox once, then run as the same user, without sudo:\n" +
		"robotsproxy ca install --browsers --no-system" + f.Args()
	return s
}
