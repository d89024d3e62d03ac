package castore

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/smallstep/truststore"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/guide"
)

// stores is the trust stores of this machine that a command changes.
type stores struct {
	list []trustStore

	// canWriteSystem says that this process may write to the system's store. If it may not, root can with sudoCommand.
	canWriteSystem bool
	sudoCommand    string

	// startFirefox is the hint if there is no database of Firefox or Chromium. That is a failure if nothing else was requested.
	startFirefox string
}

// A trustStore is one of the stores. Its function adds a certificate to it or removes it.
type trustStore struct {
	name   string
	change func(*x509.Certificate) (cli.Diagnosis, error)
}

// browserStore is the name of the databases of browsers in results. No other name is longer.
const browserStore = "browser"

// openJava opens the trust store of the Java in JAVA_HOME, or else of the java on PATH.
func openJava() (truststore.Trust, error) {
	if os.Getenv("JAVA_HOME") == "" {
		java, err := exec.LookPath("java")
		if err == nil {
			java, err = filepath.EvalSymlinks(java)
		}
		if err != nil {
			return nil, errors.New("no Java found: set JAVA_HOME, or add java to PATH")
		}
		// The JRE of Java 8 is a subdirectory of the JDK.
		home := strings.TrimSuffix(filepath.Dir(filepath.Dir(java)), "/jre")
		// The library finds Java by this variable.
		if err := os.Setenv("JAVA_HOME", home); err != nil {
			return nil, err
		}
	}
	home := os.Getenv("JAVA_HOME")
	// Without this check the library would call sudo, which asks for a password.
	for _, dir := range []string{"lib", "jre/lib"} {
		file := filepath.Join(home, dir, "security/cacerts")
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			return nil, fmt.Errorf("%w: %s", errNeedsRoot, file)
		}
		// If the file could not be opened, f is nil, and Close does nothing.
		f.Close()
	}
	t, err := truststore.NewJavaTrust()
	if err != nil {
		return nil, fmt.Errorf("keytool not found in %s", home)
	}
	return t, nil
}

// errNeedsRoot means that this user may not write to a store.
var errNeedsRoot = errors.New("needs root")

// errNoProfile means that the user has no database that Firefox or Chromium reads.
var errNoProfile = errors.New("no Firefox profile and no Chromium database found")

// change changes each store for each certificate, and prints the results.
func (s *stores) change(out io.Writer, certs []*x509.Certificate) error {
	if len(certs) == 0 {
		_, err := fmt.Fprintln(out, "no CA has been replaced")
		return err
	}
	results := cli.NewDiagnosisPrinter(out, false, browserStore)
	for _, c := range certs {
		if _, err := fmt.Fprintf(out, "%s\n%s\n", humanize.Escape(c.Subject.String()), guide.Fingerprint(c.Raw)); err != nil {
			return err
		}
		for _, t := range s.list {
			result := s.explain(t.change(c))
			result.Check = t.name
			if err := results.Add(result); err != nil {
				return err
			}
		}
	}
	return results.Verdict("ca")
}

// seeWhy is the hint for a change of the system's store that had no effect.
const seeWhy = "run the system's own command to see why"

// installInSystem adds c to the system's trust store unless it is there already.
func (s *stores) installInSystem(c *x509.Certificate) (cli.Diagnosis, error) {
	file, ours := installedFile(c)
	held := systemTrusts(c)
	switch {
	case held && ours:
		return cli.OK("is already installed, in %s", file), nil
	case held:
		return cli.OK("is already trusted, but was not installed by robotsproxy ca install"), nil
	case !s.canWriteSystem:
		return cli.Diagnosis{}, errNeedsRoot
	}
	err := truststore.Install(c, nameOption(c))
	switch {
	case err != nil:
		return cli.Diagnosis{}, err
	case !systemTrusts(c):
		return cli.Fail(seeWhy, "%s was written, but the system's roots do not contain the CA", file), nil
	case file == "":
		return cli.OK("is installed"), nil
	}
	return cli.OK("is installed, in %s", file), nil
}

// uninstallFromSystem removes c from the system's trust store if it is there.
func (s *stores) uninstallFromSystem(c *x509.Certificate) (cli.Diagnosis, error) {
	file, ours := installedFile(c)
	held := systemTrusts(c)
	switch {
	case !held && !ours:
		return cli.OK("was not installed"), nil
	case !ours && file != "":
		return cli.Fail("remove it in the way it was installed",
			"is trusted, but was not installed by robotsproxy ca install: %s does not exist", file), nil
	case !s.canWriteSystem:
		return cli.Diagnosis{}, errNeedsRoot
	}
	err := truststore.Uninstall(c, nameOption(c))
	if err == nil && systemTrusts(c) {
		return cli.Fail(seeWhy, "%s was removed, but the system's roots still contain the CA", file), nil
	}
	return cli.OK("is uninstalled"), err
}

// explain returns the result of changing a store, or what to do about err.
func (s *stores) explain(done cli.Diagnosis, err error) cli.Diagnosis {
	switch {
	case err == nil:
		return done
	case errors.Is(err, errNoProfile) && len(s.list) == 1:
		return cli.Fail(s.startFirefox, "%v", err)
	case errors.Is(err, errNoProfile):
		return cli.Warn(s.startFirefox, "%v", err)
	case errors.Is(err, errNeedsRoot) && !s.canWriteSystem:
		return cli.Fail(s.sudoCommand, "%v", err)
	}
	return cli.Fail("", "%s", commandError(err))
}

// installInJava adds c to the trust store of Java unless it is there already.
func installInJava(c *x509.Certificate) (cli.Diagnosis, error) {
	trust, err := openJava()
	if err != nil {
		return cli.Diagnosis{}, err
	}
	if trust.Exists(c) {
		return cli.OK("is already installed"), nil
	}
	return cli.OK("is installed"), truststore.Install(c, nameOption(c), truststore.WithNoSystem(), truststore.WithTrust(trust))
}

// uninstallFromJava removes c from the trust store of Java if it is there.
func uninstallFromJava(c *x509.Certificate) (cli.Diagnosis, error) {
	trust, err := openJava()
	if err != nil {
		return cli.Diagnosis{}, err
	}
	if !trust.Exists(c) {
		return cli.OK("was not installed"), nil
	}
	return cli.OK("is uninstalled"), truststore.Uninstall(c, nameOption(c), truststore.WithNoSystem(), truststore.WithTrust(trust))
}

// nameOption makes the library use storeName.
func nameOption(c *x509.Certificate) truststore.Option { return truststore.WithPrefix(storePrefix(c)) }

// commandError returns the text of a library error with the output of the command that failed.
func commandError(err error) string {
	if e, ok := errors.AsType[*truststore.CmdError](err); ok {
		err = commandFailed(e.Cmd(), e.Err(), e.Out())
	}
	return err.Error()
}

// commandFailed returns err with the command and the beginning of its output.
func commandFailed(cmd *exec.Cmd, err error, out []byte) error {
	said := strings.TrimSpace(string(out))
	said = strings.TrimSuffix(": "+said[:min(len(said), humanize.MaxBrief)], ": ")
	return fmt.Errorf("%s: %w%s", strings.Join(cmd.Args, " "), err, said)
}
