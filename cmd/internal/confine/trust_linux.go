package confine

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"robotsproxy/cmd/internal/castore"
)

// javaStores are the files that systems keep the certificates in that all Javas trust.
var javaStores = []string{"/etc/ssl/certs/java/cacerts", "/etc/pki/java/cacerts", "/etc/pki/ca-trust/extracted/java/cacerts"}

// policyDirs are where Chromium and its relatives read policies.
var policyDirs = []string{"chromium", "opt/chrome", "opt/edge", "brave"}

// firefoxPolicies is where Firefox reads policies.
const firefoxPolicies = "/etc/firefox/policies/policies.json"

// The files of the trust within InsideDir.
const (
	javaName = "cacerts.p12"
	caName   = "ca.der"
)

// layTrust writes into dir/etc the files that are laid over /etc: the resolver, the names of
// loopback, and what makes programs trust t. over has the paths elsewhere that have to be covered, with the
// names of files in dir that cover them. notes has the files that programs find, for the log.
func layTrust(dir string, t Trust) (over map[string]string, notes []string, err error) {
	etc := &layer{dir: filepath.Join(dir, etcName)}
	name, err := os.Hostname()
	if err != nil {
		return nil, nil, err
	}
	etc.write("/etc/resolv.conf", []byte("nameserver "+resolver4.String()+"\n"))
	etc.write("/etc/hosts", fmt.Appendf(nil, "127.0.0.1 localhost %s\n::1 localhost ip6-localhost ip6-loopback\n", name))
	for _, file := range castore.SystemRootFiles {
		// OpenSSL and others look for two of the files even where the system does not have them.
		if _, err := os.Stat(file); err == nil || file == castore.SystemRootFiles[0] || file == "/etc/ssl/cert.pem" {
			etc.write(file, t.Bundle)
			notes = append(notes, file)
		}
	}
	policy := fmt.Appendf(nil, `{"CACertificates":[%q]}`, base64.StdEncoding.EncodeToString(t.CA))
	for _, browser := range policyDirs {
		file := filepath.Join("/etc", browser, "policies/managed/robotsproxy.json")
		etc.write(file, policy)
		notes = append(notes, file)
	}
	if policy, err = addFirefoxPolicy(firefoxPolicies); err != nil {
		return nil, nil, err
	}
	etc.write(firefoxPolicies, policy)
	notes = append(notes, firefoxPolicies)
	over = map[string]string{}
	for _, store := range append(javaStores, ownJavaStores()...) {
		real, err := filepath.EvalSymlinks(store)
		if err != nil {
			continue
		}
		if isBelow(real, []string{"/etc"}) {
			etc.write(real, t.Java)
		} else {
			over[real] = javaName
		}
		notes = append(notes, store)
	}
	for name, text := range map[string][]byte{javaName: t.Java, caName: t.CA} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return nil, nil, err
		}
	}
	return over, notes, etc.err
}

// addFirefoxPolicy returns the policies of Firefox in a file together with one that makes it trust the CA: unlike
// Chromium, Firefox reads one file only. Without a usable file, it returns that policy alone.
func addFirefoxPolicy(file string) ([]byte, error) {
	var all struct {
		Policies map[string]any `json:"policies"`
	}
	text, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(text, &all) != nil || all.Policies == nil {
		all.Policies = map[string]any{}
	}
	certificates, ok := all.Policies["Certificates"].(map[string]any)
	if !ok {
		certificates = map[string]any{}
	}
	installed, _ := certificates["Install"].([]any)
	certificates["Install"] = append(installed, filepath.Join(InsideDir, caName))
	all.Policies["Certificates"] = certificates
	return json.Marshal(all)
}

// ownJavaStores returns the trust stores of the Java in JAVA_HOME and of the one on PATH.
func ownJavaStores() (all []string) {
	homes := []string{os.Getenv("JAVA_HOME")}
	if java, err := exec.LookPath("java"); err == nil {
		if java, err = filepath.EvalSymlinks(java); err == nil {
			homes = append(homes, filepath.Dir(filepath.Dir(java)))
		}
	}
	for _, home := range homes {
		if home != "" {
			all = append(all, filepath.Join(home, "lib/security/cacerts"), filepath.Join(home, "jre/lib/security/cacerts"))
		}
	}
	return all
}

// A layer is a directory that is laid over /etc. It keeps its first error.
type layer struct {
	dir string
	err error
}

// write puts a file into the layer. Where a directory of the system's is a link, the file goes where
// the link leads, so that the link stays. A file that is not in /etc then is left out.
func (l *layer) write(path string, text []byte) {
	if l.err != nil {
		return
	}
	dir, rest := filepath.Dir(path), ""
	real, err := filepath.EvalSymlinks(dir)
	// The loop passes over the directories that the system does not have.
	for err != nil && dir != "/" {
		dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest)
		real, err = filepath.EvalSymlinks(dir)
	}
	real = filepath.Join(real, rest, filepath.Base(path))
	within, ok := strings.CutPrefix(real, "/etc/")
	if !ok {
		return
	}
	file := filepath.Join(l.dir, within)
	if l.err = os.MkdirAll(filepath.Dir(file), 0o755); l.err != nil {
		return
	}
	l.err = os.WriteFile(file, text, 0o644)
}
