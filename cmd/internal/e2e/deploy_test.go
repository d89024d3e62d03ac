package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

// deployDir is what is there for those who put the proxy somewhere.
const deployDir = treeRoot + "/docs/deploy"

// A tree is a YAML document of somebody else's making.
type tree map[string]any

func readTrees(t testing.TB, file string) (all []tree) {
	t.Helper()
	dec := yaml.NewDecoder(strings.NewReader(readText(t, filepath.Join(deployDir, file))))
	for {
		var one tree
		if err := dec.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, one)
	}
}

// at follows keys and indices down from v; nil where there is nothing.
func at(v any, way ...any) any {
	for _, step := range way {
		switch key := step.(type) {
		case string:
			m, ok := v.(tree)
			if !ok {
				return nil
			}
			v = m[key]
		case int:
			l, ok := v.([]any)
			if !ok || key >= len(l) {
				return nil
			}
			v = l[key]
		}
	}
	return v
}

// same holds what stands somewhere against what has to.
func same(t testing.TB, where string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", where, diff)
	}
}

// manifest is the one of its kind and name among the Kubernetes manifests.
func manifest(t testing.TB, kind, name string) tree {
	t.Helper()
	for _, file := range at(readTrees(t, "kubernetes/kustomization.yaml")[0], "resources").([]any) {
		for _, one := range readTrees(t, "kubernetes/"+file.(string)) {
			if one["kind"] == kind && at(one, "metadata", "name") == name {
				return one
			}
		}
	}
	t.Fatalf("no %s %s in kustomization.yaml's files", kind, name)
	return nil
}

// configMap is the configuration that the manifests carry.
func configMap(t testing.TB) string {
	t.Helper()
	return at(manifest(t, "ConfigMap", "robotsproxy"), "data", "config.yaml").(string)
}

// facts are what an image says that others have to say too.
type facts struct {
	probe, args      []string
	port, state, etc string
	uid, gid         string
}

func imageFacts(t testing.TB, image dockerfile) (f facts) {
	t.Helper()
	_, check, _ := strings.Cut(image.only(t, "HEALTHCHECK"), " CMD ")
	f.probe, f.args = execForm(t, check), execForm(t, image.only(t, "CMD"))
	f.port, f.state, f.etc = image.only(t, "EXPOSE"), image.only(t, "VOLUME"), filepath.Dir(f.args[len(f.args)-1])
	f.uid, f.gid, _ = strings.Cut(image.only(t, "USER"), ":")
	return f
}

// What the parts of a deployment say of one another is the same everywhere.
func TestDeploymentsAgree(t *testing.T) {
	t.Parallel()
	stages := readDockerfile(t).stages()
	image := stages[len(stages)-1]
	f := imageFacts(t, image)
	var own tree
	if err := yaml.Unmarshal([]byte(readText(t, deployDir+"/etc/config.yaml")), &own); err != nil {
		t.Fatal(err)
	}
	same(t, "listen", own["listen"], "0.0.0.0:"+f.port)
	same(t, "state_dir", own["state_dir"], f.state)
	same(t, "admin.listen", at(own, "admin", "listen"), f.probe[len(f.probe)-1])

	t.Run("compose", func(t *testing.T) {
		all := readTrees(t, "compose.yaml")[0]
		proxy := at(all, "services", "proxy")
		same(t, "user", at(proxy, "user"), f.uid+":"+f.gid)
		same(t, "read-only root", at(proxy, "read_only"), true)
		same(t, "healthcheck", at(proxy, "healthcheck", "test"), append([]string{"CMD"}, f.probe...))
		same(t, "volumes", at(proxy, "volumes"), []string{"state:" + f.state, "./etc:" + f.etc + ":ro"})
		same(t, "build", at(proxy, "build", "context"), "../..")
		same(t, "networks of the proxy", at(proxy, "networks"), []string{"crawlers", "outside"})
		same(t, "networks of the crawler", at(all, "services", "crawler", "networks"), []string{"crawlers"})
		same(t, "way out of the crawlers", at(all, "networks", "crawlers", "internal"), true)
		same(t, "https_proxy", at(all, "services", "crawler", "environment", "https_proxy"), "http://proxy:"+f.port)
	})

	t.Run("kubernetes", func(t *testing.T) { manifestsAgree(t, f, own) })
}

// manifestsAgree holds the manifests against the image, and the configuration
// that they carry against its own.
func manifestsAgree(t *testing.T, f facts, own tree) {
	pod := at(manifest(t, "StatefulSet", "robotsproxy"), "spec", "template", "spec")
	proxy := at(pod, "containers", 0)
	for _, key := range []string{"runAsUser", "fsGroup"} {
		same(t, key, at(pod, "securityContext", key), f.uid)
	}
	same(t, "read-only root", at(proxy, "securityContext", "readOnlyRootFilesystem"), true)
	same(t, "args", at(proxy, "args"), f.args)
	same(t, "port", at(proxy, "ports", 0, "containerPort"), f.port)
	for _, key := range []string{"startupProbe", "readinessProbe"} {
		same(t, key, at(proxy, key, "exec", "command"), f.probe)
	}
	same(t, "state", at(proxy, "volumeMounts", 0, "mountPath"), f.state)
	same(t, "configuration", at(proxy, "volumeMounts", 1, "mountPath"), f.etc)
	same(t, "subPath, through which a change is not seen", at(proxy, "volumeMounts", 1, "subPath"), nil)
	service := at(manifest(t, "Service", "robotsproxy"), "spec", "ports", 0)
	same(t, "port of the service", at(service, "port"), f.port)
	same(t, "target of the service", at(service, "targetPort"), at(proxy, "ports", 0, "name"))
	env := at(manifest(t, "ConfigMap", "robotsproxy-env"), "data")
	same(t, "https_proxy", at(env, "https_proxy"), "http://robotsproxy.robotsproxy.svc:"+f.port)
	out := at(manifest(t, "NetworkPolicy", "only-through-the-proxy"), "spec")
	same(t, "whom the policy binds", at(out, "podSelector"), tree{})
	same(t, "ways out of the crawlers", len(at(out, "egress").([]any)), 2)
	same(t, "port of the way out", at(out, "egress", 0, "ports", 0, "port"), f.port)

	var mapped tree
	if err := yaml.Unmarshal([]byte(configMap(t)), &mapped); err != nil {
		t.Fatal(err)
	}
	same(t, "state_dir", mapped["state_dir"], f.state+"/state") // the volume's root is not the proxy's alone
	mapped["state_dir"] = own["state_dir"]
	same(t, "configuration", mapped, own)
}

// Configurations that are handed out are read without a complaint.
func TestDeployedConfigurationsAreGood(t *testing.T) {
	t.Parallel()
	mapped := filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, mapped, configMap(t))
	for _, file := range []string{deployDir + "/etc/config.yaml", mapped, treeRoot + "/config.example.yaml"} {
		command(t, "config", "check", "-c", file).want(t, 0)
	}
}

// The certificate is where the variables of a deployment's clients say.
func TestDeployedClientsKnowTheirCA(t *testing.T) {
	t.Parallel()
	crawler := at(readTrees(t, "compose.yaml")[0], "services", "crawler")
	env := at(manifest(t, "ConfigMap", "robotsproxy-env"), "data").(tree)
	job := at(manifest(t, "Job", "crawl"), "spec", "template", "spec", "containers", 0)
	same(t, "directory of the CA in the pod", at(job, "volumeMounts", 0, "mountPath"), "/etc/robotsproxy-ca")
	same(t, "file of the CA in the container", at(crawler, "volumes", 0, "target"), "/etc/robotsproxy-ca/ca.pem")
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"} {
		same(t, name+" of the pod", env[name], "/etc/robotsproxy-ca/ca.pem")
		same(t, name+" of the container", at(crawler, "environment", name), env[name])
	}
}

// unit is what robotsproxy.service says, with all values of a key.
func unit(t testing.TB) map[string][]string {
	t.Helper()
	said := map[string][]string{}
	for line := range strings.Lines(readText(t, deployDir+"/systemd/robotsproxy.service")) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			said[key] = append(said[key], value)
		}
	}
	return said
}

// The unit names what is there, and systemd, where it is on the machine, finds
// nothing to say against it but that an old one does not know notify-reload.
func TestUnit(t *testing.T) {
	t.Parallel()
	said := unit(t)
	same(t, "ExecStart", said["ExecStart"], []string{"/usr/bin/robotsproxy serve -c /etc/robotsproxy/config.yaml"})
	same(t, "User", said["User"], []string{"robotsproxy"})
	same(t, "StateDirectory", said["StateDirectory"], []string{"robotsproxy"})
	if fields := strings.Fields(readText(t, deployDir+"/systemd/robotsproxy.sysusers")); !slices.Equal(fields[:2], []string{"u", "robotsproxy"}) {
		t.Errorf("robotsproxy.sysusers makes %q", fields[:2])
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not on this machine")
	}
	file := filepath.Join(t.TempDir(), "robotsproxy.service")
	text := readText(t, deployDir+"/systemd/robotsproxy.service")
	writeFile(t, file, strings.Replace(text, "/usr/bin/robotsproxy", robotsproxy(t), 1))
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	out := finish(t, exec.Command(analyze, "verify", "--man=no", file)).want(t, 0)
	for line := range strings.Lines(out.stderr) {
		if !strings.HasSuffix(line, "Failed to parse service type, ignoring: notify-reload\n") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
	// Exposure in tenths of systemd's points, of 100: below 20 it calls a unit OK.
	finish(t, exec.Command(analyze, "security", "--offline=yes", "--threshold=15", file)).want(t, 0)
}

// What the document tells packagers to do leaves everything in its place, and
// completions that a shell can read.
func TestPackagersInstall(t *testing.T) {
	t.Parallel()
	blocks := fence.FindAllStringSubmatch(readText(t, deployDir+"/README.md"), -1)
	if len(blocks) != 1 || blocks[0][1] != "run" {
		t.Fatalf("%d blocks to run in docs/deploy/README.md", len(blocks))
	}
	src, dest := t.TempDir(), t.TempDir()
	for name, to := range map[string]string{"docs": treeRoot + "/docs", "LICENSE": treeRoot + "/LICENSE", "robotsproxy": robotsproxy(t)} {
		to, err := filepath.Abs(to)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(src, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-euc", blocks[0][3])
	cmd.Dir, cmd.Env = src, cleanEnv("DESTDIR="+dest)
	finish(t, cmd).want(t, 0)
	for _, name := range []string{"usr/bin/robotsproxy", "usr/lib/systemd/system/robotsproxy.service", "usr/lib/sysusers.d/robotsproxy.conf",
		"usr/share/doc/robotsproxy/config.example.yaml", "usr/share/zsh/vendor-completions/_robotsproxy",
		"usr/share/fish/vendor_completions.d/robotsproxy.fish"} {
		if !exists(filepath.Join(dest, name)) {
			t.Errorf("no %s", name)
		}
	}
	bash := filepath.Join(dest, "usr/share/bash-completion/completions/robotsproxy")
	if shell, err := exec.LookPath("bash"); err == nil {
		finish(t, exec.Command(shell, "-n", bash)).want(t, 0)
	}
	if !strings.Contains(readText(t, bash), "complete -o default -F __start_robotsproxy robotsproxy") {
		t.Error("bash is not told of completions")
	}
}
