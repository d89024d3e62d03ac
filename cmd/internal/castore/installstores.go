package castore

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/smallstep/truststore"
	"golang.org/x/sys/unix"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/explain/humanize"
)

// stores are the trust stores of this machine that are to be changed.
type stores struct {
	each []trustStore
	root bool   // this process may write to the system's
	sudo string // the command that would, where it may not
	nss  string // the command for the databases of Firefox and Chromium alone; "": nothing is to come into them
}

// A trustStore is one of them. open is nil for the system's.
type trustStore struct {
	name string
	open func() (truststore.Trust, error)
}

func newStores(f *installFlags, verb string) stores {
	s := stores{root: os.Geteuid() == 0 || runtime.GOOS != "linux"} // elsewhere the library asks sudo itself
	if !f.noSystem {
		s.each = append(s.each, trustStore{name: "system"})
	}
	if f.java {
		s.each = append(s.each, trustStore{"java", openJava})
	}
	if f.firefox {
		s.each = append(s.each, trustStore{"firefox", openNSS})
	}
	program, err := os.Executable()
	if err != nil {
		program = "robotsproxy"
	}
	s.sudo = "sudo " + cli.ShellQuote(program) + " ca " + verb + f.sudoFlags()
	if verb == "install" {
		s.nss = "robotsproxy ca install --firefox --no-system" + f.Again()
	}
	return s
}

// openJava is the store of the Java that JAVA_HOME names or else PATH leads to.
func openJava() (truststore.Trust, error) {
	if os.Getenv("JAVA_HOME") == "" {
		java, err := exec.LookPath("java")
		if err == nil {
			java, err = filepath.EvalSymlinks(java)
		}
		if err != nil {
			return nil, errors.New("no Java is found: neither is JAVA_HOME set, nor java on PATH")
		}
		home := strings.TrimSuffix(filepath.Dir(filepath.Dir(java)), "/jre") // Java 8's own is below the JDK's
		if err := os.Setenv("JAVA_HOME", home); err != nil {                 // the library reads it there
			return nil, err
		}
	}
	home := os.Getenv("JAVA_HOME")
	for _, dir := range []string{"lib", "jre/lib"} { // the library would ask sudo, and wait for its password
		file := filepath.Join(home, dir, "security/cacerts")
		if err := unix.Access(file, unix.W_OK); errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) {
			return nil, fmt.Errorf("%w: %s", errNeedsRoot, file)
		}
	}
	t, err := truststore.NewJavaTrust()
	if err != nil {
		return nil, fmt.Errorf("no keytool in %s", home)
	}
	return t, nil
}

// errNeedsRoot is of a store that this user may not write to.
var errNeedsRoot = errors.New("needs root")

// errNoProfile is of a user who has no database that Firefox or Chromium reads.
var errNoProfile = errors.New("no profile of Firefox is found, nor a database of Chromium")

// openNSS is the databases of Firefox's profiles, and the one of Chromium.
func openNSS() (truststore.Trust, error) {
	t, err := truststore.NewNSSTrust()
	if err != nil {
		return nil, errors.New("certutil is not on PATH: it is in libnss3-tools (Debian) or nss-tools (Fedora)")
	}
	if t.PreCheck() != nil { // it looks for nothing else
		return nil, errNoProfile
	}
	return t, nil
}

// change does to every store and certificate what is asked for, and says what came of it.
func (s stores) change(out io.Writer, certs []*x509.Certificate, do func(stores, trustStore, *x509.Certificate) cli.Diagnosis) error {
	if len(certs) == 0 {
		_, err := fmt.Fprintln(out, "no CA has been replaced")
		return err
	}
	told := cli.NewDiagnoses(out, false, "firefox")
	for _, c := range certs {
		if _, err := fmt.Fprintf(out, "%s\n%s\n", humanize.Escape(c.Subject.String()), Fingerprint(c.Raw)); err != nil {
			return err
		}
		for _, t := range s.each {
			found := do(s, t, c)
			found.Check = t.name
			if err := told.Add(found); err != nil {
				return err
			}
		}
	}
	return told.Verdict("ca")
}

// install puts c into t, where it is not yet.
func (s stores) install(t trustStore, c *x509.Certificate) cli.Diagnosis {
	if t.open != nil {
		return s.inStore(t, c, putIn)
	}
	file, ours := systemFile(c)
	held := systemHolds(c)
	switch {
	case held && ours:
		return cli.Fine("is installed already, in %s", file)
	case held:
		return cli.Fine("is trusted already, but not by robotsproxy ca install")
	case !s.root:
		return cli.Fail(s.sudo, "needs root")
	}
	if err := truststore.Install(c, named(c)); err != nil {
		return cli.Fail("", "%s", inWords(err))
	}
	if !systemHolds(c) {
		return cli.Fail("look at what the system's own command says", "%s is written, but the system's roots are without it", file)
	}
	if file == "" {
		return cli.Fine("is installed")
	}
	return cli.Fine("is installed, in %s", file)
}

// uninstall takes c out of t, if it is there.
func (s stores) uninstall(t trustStore, c *x509.Certificate) cli.Diagnosis {
	if t.open != nil {
		return s.inStore(t, c, takeOut)
	}
	file, ours := systemFile(c)
	held := systemHolds(c)
	switch {
	case !held && !ours:
		return cli.Fine("was not installed")
	case !ours && file != "":
		return cli.Fail("take it out by the way it came in", "is trusted, but not by robotsproxy ca install: there is no %s", file)
	case !s.root:
		return cli.Fail(s.sudo, "needs root")
	}
	if err := truststore.Uninstall(c, named(c)); err != nil {
		return cli.Fail("", "%s", inWords(err))
	}
	if systemHolds(c) {
		return cli.Fail("look at what the system's own command says", "%s is removed, but the system's roots have the CA still", file)
	}
	return cli.Fine("is uninstalled")
}

// inStore opens t, does to it what is asked for, and says why it could not. The
// library passes over stores that cannot be changed in silence.
func (s stores) inStore(t trustStore, c *x509.Certificate, do func(truststore.Trust, *x509.Certificate) (cli.Diagnosis, error)) cli.Diagnosis {
	trust, err := t.open()
	if err == nil {
		err = trust.PreCheck()
	}
	var done cli.Diagnosis
	if err == nil {
		done, err = do(trust, c)
	}
	switch {
	case err == nil:
		return done
	case errors.Is(err, errNoProfile):
		return s.withoutProfile()
	case errors.Is(err, errNeedsRoot) && !s.root:
		return cli.Fail(s.sudo, "%v", err)
	}
	return cli.Fail("", "%s", inWords(err))
}

// withoutProfile is of databases that are not there: a failure where nothing else was
// asked for, and no certificate is in them.
func (s stores) withoutProfile() cli.Diagnosis {
	if s.nss == "" {
		return cli.Fine("was not installed: %v", errNoProfile)
	}
	const start = "start Firefox once, and then, as the user who has (not by sudo):\n"
	if len(s.each) == 1 {
		return cli.Fail(start+s.nss, "%v", errNoProfile)
	}
	return cli.Warn(start+s.nss, "%v", errNoProfile)
}

// A noting trust remembers whether the certificate was there before.
type noting struct {
	truststore.Trust
	had bool
}

func (n *noting) Exists(c *x509.Certificate) bool {
	n.had = n.Trust.Exists(c)
	return n.had
}

func putIn(trust truststore.Trust, c *x509.Certificate) (cli.Diagnosis, error) {
	n := &noting{Trust: trust}
	err := truststore.Install(c, named(c), truststore.WithNoSystem(), truststore.WithTrust(n))
	if n.had {
		return cli.Fine("is installed already"), err
	}
	return cli.Fine("is installed"), err
}

// takeOut does not ask first: where there are several databases, one alone may
// have it.
func takeOut(trust truststore.Trust, c *x509.Certificate) (cli.Diagnosis, error) {
	return cli.Fine("is not installed any more"), truststore.Uninstall(c, named(c), truststore.WithNoSystem(), truststore.WithTrust(trust))
}

// named gives a CA its name in the stores: ours, and by its fingerprint unlike that
// of any other.
func named(c *x509.Certificate) truststore.Option {
	sum := sha256.Sum256(c.Raw)
	return truststore.WithPrefix(fmt.Sprintf("robotsproxy-%x-", sum[:8]))
}

// MaxSaid is how many octets of what a command has said are passed on.
const MaxSaid = 300

// inWords is an error of the library with what the command that failed has said.
func inWords(err error) string {
	e, ok := errors.AsType[*truststore.CmdError](err)
	if !ok {
		return err.Error()
	}
	said := strings.TrimSpace(string(e.Out()))
	return strings.TrimSuffix(fmt.Sprintf("%s: %v: %s", strings.Join(e.Cmd().Args, " "), e.Err(), said[:min(len(said), MaxSaid)]), ": ")
}
