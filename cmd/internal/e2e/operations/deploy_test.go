package operations

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"robotsproxy/cmd/internal/e2e"
)

// A tree is a YAML document in a foreign format.
type tree map[string]any

func readTrees(t testing.TB, file string) (all []tree) {
	t.Helper()
	dec := yaml.NewDecoder(strings.NewReader(e2e.ReadText(t, filepath.Join(e2e.DeployDir(), file))))
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

// at follows keys and indices down from v. It returns nil if a key is missing.
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

// same compares a value with the expected one.
func same(t testing.TB, where string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", where, diff)
	}
}

// manifest returns the Kubernetes manifest with this kind and name.
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

// configMap returns the configuration in the manifests.
func configMap(t testing.TB) string {
	t.Helper()
	return at(manifest(t, "ConfigMap", "robotsproxy"), "data", "config.yaml").(string)
}

// facts are values of an image that other files must repeat.
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

// The files of a deployment agree with each other.
func TestDeploymentsAgree(t *testing.T) {
	t.Parallel()
	stages := readDockerfile(t).stages()
	image := stages[len(stages)-1]
	f := imageFacts(t, image)
	var own tree
	if err := yaml.Unmarshal([]byte(e2e.ReadText(t, e2e.DeployDir()+"/etc/config.yaml")), &own); err != nil {
		t.Fatal(err)
	}
	same(t, "listen", own["listen"], "0.0.0.0:"+f.port)
	same(t, "state_dir", own["state_dir"], f.state)
	same(t, "admin.listen", at(own, "admin", "listen"), f.probe[len(f.probe)-1])

	shared := fleetConfig(t)
	for _, key := range []string{"listen", "open", "state_dir"} {
		same(t, key+" of a replica", shared[key], own[key])
	}
	same(t, "admin.listen of a replica", shared["admin"], own["admin"])

	t.Run("compose", func(t *testing.T) { composeAgrees(t, f, shared) })
	t.Run("single", func(t *testing.T) { singleAgrees(t, f, own) })
	t.Run("kubernetes", func(t *testing.T) { manifestsAgree(t, f, shared) })
	t.Run("sidecar", func(t *testing.T) { sidecarsAgree(t, f) })
}

// singleAgrees compares the proxy for one scraper with the image. The scraper reaches only the
// proxy, and nobody reaches the admin listener.
func singleAgrees(t *testing.T, f facts, own tree) {
	config := readTrees(t, "single/config.yaml")[0]
	for _, key := range []string{"listen", "open", "state_dir"} {
		same(t, key, config[key], own[key])
	}
	same(t, "admin", config["admin"], tree{"listen": "", "metrics_listen": f.probe[len(f.probe)-1]})
	all := readTrees(t, "single/compose.yaml")[0]
	at := func(way ...any) any { return at(all, way...) }
	same(t, "services", slices.Sorted(maps.Keys(at("services").(tree))), []string{"proxy", "scraper"})
	same(t, "build", at("services", "proxy", "build", "context"), "../../..")
	same(t, "user, which is the image's", at("services", "proxy", "user"), nil)
	same(t, "healthcheck, which is the image's", at("services", "proxy", "healthcheck"), nil)
	same(t, "read-only root", at("services", "proxy", "read_only"), true)
	same(t, "volumes", at("services", "proxy", "volumes"), []string{"state:" + f.state, ".:" + f.etc + ":ro"})
	same(t, "published ports", at("services", "proxy", "ports"), nil)
	same(t, "networks of the proxy", at("services", "proxy", "networks"), []string{"scrapers", "outside"})
	same(t, "networks of the scraper", at("services", "scraper", "networks"), []string{"scrapers"})
	same(t, "way out of the scraper", at("networks", "scrapers", "internal"), true)
	same(t, "https_proxy", at("services", "scraper", "environment", "https_proxy"), "http://proxy:"+f.port)
}

// sidecarsAgree compares the sidecars with the image, their configuration and the firewall's rules.
func sidecarsAgree(t *testing.T, f facts) {
	config := readTrees(t, "sidecar/config.yaml")[0]
	rules := e2e.ReadText(t, e2e.DeployDir()+"/nftables/host.nft")
	_, port, _ := strings.Cut(fmt.Sprint(config["listen_transparent"]), "]:")
	if !strings.Contains(rules, "define proxy_port = "+port+"\n") {
		t.Errorf("host.nft does not redirect to port %s", port)
	}
	_, rest, _ := strings.Cut(rules, "define crawler = ")
	crawler, _, _ := strings.Cut(rest, "\n")
	same(t, "admin.listen", at(config, "admin", "listen"), f.probe[len(f.probe)-1])

	services := readTrees(t, "sidecar/compose.yaml")[0]["services"]
	pod := readTrees(t, "sidecar/pod.yaml")[0]["spec"]
	same(t, "user of the proxy", at(services, "proxy", "user"), f.uid+":"+f.gid)
	same(t, "user of the proxy in the pod", at(pod, "initContainers", 1, "securityContext", "runAsUser"), f.uid)
	same(t, "user of the crawler", at(services, "crawler", "user"), crawler+":"+crawler)
	same(t, "user of the crawler in the pod", at(pod, "containers", 0, "securityContext", "runAsUser"), crawler)
	same(t, "arguments in the pod", at(pod, "initContainers", 1, "args"), f.args)
	same(t, "probe in the pod", at(pod, "initContainers", 1, "startupProbe", "exec", "command"), f.probe)
	for _, name := range []string{"rules", "crawler"} {
		same(t, "network of "+name, at(services, name, "network_mode"), "service:proxy")
	}
}

// fleetConfig returns the configuration of the replicas in compose.yaml.
func fleetConfig(t testing.TB) (shared tree) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(e2e.ReadText(t, e2e.DeployDir()+"/fleet/config.yaml")), &shared); err != nil {
		t.Fatal(err)
	}
	return shared
}

// seconds returns the number of seconds in a value such as 60s.
func seconds(t testing.TB, v any) float64 {
	t.Helper()
	d, err := time.ParseDuration(fmt.Sprint(v))
	if err != nil {
		t.Fatal(err)
	}
	return d.Seconds()
}

// lastOfAll is how long a replica may take after its drain.
const lastOfAll = 30

// composeAgrees compares the services with the image and with the configuration of the
// replicas.
func composeAgrees(t *testing.T, f facts, shared tree) {
	all := readTrees(t, "compose.yaml")[0]
	at := func(way ...any) any { return at(all, append([]any{"services"}, way...)...) }
	ca := "ca:" + filepath.Dir(fmt.Sprint(shared["tls"].(tree)["ca_cert"])) + ":ro"
	balanced := e2e.ReadText(t, e2e.DeployDir()+"/fleet/haproxy.cfg")
	for i := range shared["store"].(tree)["replicas"].(int) {
		name := fmt.Sprintf("proxy-%d", i+1)
		same(t, "user", at(name, "user"), f.uid+":"+f.gid)
		same(t, "read-only root", at(name, "read_only"), true)
		same(t, "healthcheck", at(name, "healthcheck", "test"), append([]string{"CMD"}, f.probe...))
		same(t, "volumes", at(name, "volumes"), []string{fmt.Sprintf("state-%d:%s", i+1, f.state), ca, "./fleet:" + f.etc + ":ro"})
		same(t, "build", at(name, "build", "context"), "../..")
		same(t, "networks of a replica", at(name, "networks"), []string{"replicas", "outside"})
		same(t, "hostname", at(name, "hostname"), name)
		if seconds(t, at(name, "stop_grace_period")) < seconds(t, shared["drain"])+lastOfAll {
			t.Error("a replica is killed while it drains")
		}
		if !strings.Contains(balanced, "server "+name+" "+name+":"+f.port+" check\n") {
			t.Errorf("haproxy.cfg does not know %s", name)
		}
	}
	same(t, "a replica more than store.replicas", at(fmt.Sprintf("proxy-%d", shared["store"].(tree)["replicas"].(int)+1)), nil)
	same(t, "volume of the CA", at("ca", "volumes"), []string{"ca:" + f.state}) // the image has created it for that user
	same(t, "user of the CA", at("ca", "user"), f.uid+":"+f.gid)
	same(t, "networks of the store", at("store", "networks"), []string{"replicas"})
	same(t, "store", shared["store"].(tree)["redis"], "redis://store:6379")
	same(t, "networks of the balancer", at("proxy", "networks"), []string{"crawlers", "replicas"})
	same(t, "networks of the crawler", at("crawler", "networks"), []string{"crawlers"})
	for _, name := range []string{"crawlers", "replicas"} {
		same(t, "way out of "+name, all["networks"].(tree)[name].(tree)["internal"], true)
	}
	same(t, "https_proxy", at("crawler", "environment", "https_proxy"), "http://proxy:"+f.port)
}

// manifestsAgree compares the manifests with the image, and their configuration with the
// one of compose.yaml.
func manifestsAgree(t *testing.T, f facts, shared tree) {
	set := manifest(t, "StatefulSet", "robotsproxy")
	same(t, "replicas", at(set, "spec", "replicas"), at(shared, "store", "replicas"))
	pod := at(set, "spec", "template", "spec")
	if float64(at(pod, "terminationGracePeriodSeconds").(int)) < seconds(t, shared["drain"])+lastOfAll {
		t.Error("a pod is killed while it drains")
	}
	proxy := at(pod, "containers", 0)
	for _, key := range []string{"runAsUser", "fsGroup"} {
		same(t, key, at(pod, "securityContext", key), f.uid)
	}
	same(t, "read-only root", at(proxy, "securityContext", "readOnlyRootFilesystem"), true)
	same(t, "args", at(proxy, "args"), f.args)
	same(t, "port", at(proxy, "ports", 0, "containerPort"), f.port)
	_, metrics, _ := strings.Cut(fmt.Sprint(at(shared, "admin", "metrics_listen")), ":")
	same(t, "port of metrics", at(proxy, "ports", 1, "containerPort"), metrics)
	same(t, "port of metrics in the annotation", at(set, "spec", "template", "metadata", "annotations", "prometheus.io/port"), metrics)
	same(t, "port of metrics that is open", at(manifest(t, "NetworkPolicy", "robotsproxy"), "spec", "ingress", 1, "ports", 0, "port"), metrics)
	for _, key := range []string{"startupProbe", "readinessProbe"} {
		same(t, key, at(proxy, key, "exec", "command"), f.probe)
	}
	same(t, "state", at(proxy, "volumeMounts", 0, "mountPath"), f.state)
	same(t, "configuration", at(proxy, "volumeMounts", 1, "mountPath"), f.etc)
	same(t, "CA", at(proxy, "volumeMounts", 2, "mountPath"), filepath.Dir(fmt.Sprint(at(shared, "tls", "ca_cert"))))
	same(t, "port of the store", at(manifest(t, "Service", "store"), "spec", "ports", 0, "port"), 6379)
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
	same(t, "state_dir", mapped["state_dir"], f.state+"/state")                   // other users may access the root of the volume
	mapped["state_dir"], mapped["limits"] = shared["state_dir"], shared["limits"] // clients have their own addresses there
	same(t, "configuration", mapped, shared)
}

// The published configurations are valid.
func TestDeployedConfigurationsAreGood(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e2e.Command(t, "ca", "show", "--state", dir).Want(t, 0) // creates the CA of the deployment
	mapped, shared, sidecar := filepath.Join(dir, "mapped.yaml"), filepath.Join(dir, "fleet.yaml"), filepath.Join(dir, "sidecar.yaml")
	for file, text := range map[string]string{
		mapped: configMap(t), shared: e2e.ReadText(t, e2e.DeployDir()+"/fleet/config.yaml"), sidecar: e2e.ReadText(t, e2e.DeployDir()+"/sidecar/config.yaml"),
	} {
		e2e.WriteFile(t, file, strings.ReplaceAll(text, "/etc/robotsproxy-ca/", dir+"/"))
	}
	for _, file := range []string{e2e.DeployDir() + "/etc/config.yaml", e2e.DeployDir() + "/systemd/config.yaml", e2e.DeployDir() + "/single/config.yaml", shared, mapped, sidecar, e2e.TreeRoot() + "/config.example.yaml"} {
		e2e.Command(t, "config", "check", "-c", file).Want(t, 0)
	}
}

// The certificate is at the path in the variables of a deployment's clients.
func TestDeployedClientsKnowTheirCA(t *testing.T) {
	t.Parallel()
	crawler := at(readTrees(t, "compose.yaml")[0], "services", "crawler").(tree)
	scraper := at(readTrees(t, "single/compose.yaml")[0], "services", "scraper").(tree)
	env := at(manifest(t, "ConfigMap", "robotsproxy-env"), "data").(tree)
	job := at(manifest(t, "Job", "crawl"), "spec", "template", "spec", "containers", 0)
	same(t, "directory of the CA in the pod", at(job, "volumeMounts", 0, "mountPath"), "/etc/robotsproxy-ca")
	same(t, "file of the CA in the container", at(crawler, "volumes", 0, "target"), "/etc/robotsproxy-ca/ca.pem")
	for _, key := range []string{"environment", "volumes"} {
		same(t, key+" of the scraper", scraper[key], crawler[key])
	}
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"} {
		same(t, name+" of the pod", env[name], "/etc/robotsproxy-ca/ca.pem")
		same(t, name+" of the container", at(crawler, "environment", name), env[name])
	}
}

// unit returns the values of each key in robotsproxy.service.
func unit(t testing.TB) map[string][]string {
	t.Helper()
	said := map[string][]string{}
	for line := range strings.Lines(e2e.ReadText(t, e2e.DeployDir()+"/systemd/robotsproxy.service")) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			said[key] = append(said[key], value)
		}
	}
	return said
}

// All paths in the unit exist. If systemd is on the machine, it accepts the unit; an old
// systemd may only not know notify-reload.
func TestUnit(t *testing.T) {
	t.Parallel()
	said := unit(t)
	same(t, "ExecStart", said["ExecStart"], []string{"/usr/bin/robotsproxy serve -c /etc/robotsproxy/config.yaml"})
	same(t, "User", said["User"], []string{"robotsproxy"})
	same(t, "StateDirectory", said["StateDirectory"], []string{"robotsproxy"})
	if fields := strings.Fields(e2e.ReadText(t, e2e.DeployDir()+"/systemd/robotsproxy.sysusers")); !slices.Equal(fields[:2], []string{"u", "robotsproxy"}) {
		t.Errorf("robotsproxy.sysusers makes %q", fields[:2])
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not on this machine")
	}
	file := filepath.Join(t.TempDir(), "robotsproxy.service")
	text := e2e.ReadText(t, e2e.DeployDir()+"/systemd/robotsproxy.service")
	e2e.WriteFile(t, file, strings.Replace(text, "/usr/bin/robotsproxy", e2e.Binary(t), 1))
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	out := e2e.Finish(t, exec.Command(analyze, "verify", "--man=no", file)).Want(t, 0)
	for line := range strings.Lines(out.Stderr) {
		if !strings.HasSuffix(line, "Failed to parse service type, ignoring: notify-reload\n") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
	// The exposure in tenths of systemd's points, of 100. systemd rates a unit below 20
	// as OK.
	e2e.Finish(t, exec.Command(analyze, "security", "--offline=yes", "--threshold=15", file)).Want(t, 0)
}

// The instructions for packagers put everything in its place, and a shell can read the
// completions.
func TestPackagersInstall(t *testing.T) {
	t.Parallel()
	blocks := e2e.Fence.FindAllStringSubmatch(e2e.ReadText(t, e2e.DeployDir()+"/README.md"), -1)
	if len(blocks) != 1 || blocks[0][1] != "run" {
		t.Fatalf("%d blocks to run in docs/deploy/README.md", len(blocks))
	}
	src, dest := t.TempDir(), t.TempDir()
	for name, to := range map[string]string{"docs": e2e.TreeRoot() + "/docs", "LICENSE": e2e.TreeRoot() + "/LICENSE", "robotsproxy": e2e.Binary(t)} {
		to, err := filepath.Abs(to)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(src, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-euc", blocks[0][3])
	cmd.Dir, cmd.Env = src, e2e.CleanEnv("DESTDIR="+dest)
	e2e.Finish(t, cmd).Want(t, 0)
	for _, name := range []string{"usr/bin/robotsproxy", "usr/lib/systemd/system/robotsproxy.service", "usr/lib/sysusers.d/robotsproxy.conf",
		"etc/robotsproxy/config.yaml", "usr/share/doc/robotsproxy/config.example.yaml", "usr/share/man/man1/robotsproxy-serve.1", "usr/share/zsh/vendor-completions/_robotsproxy",
		"usr/share/fish/vendor_completions.d/robotsproxy.fish"} {
		if !e2e.Exists(filepath.Join(dest, name)) {
			t.Errorf("no %s", name)
		}
	}
	bash := filepath.Join(dest, "usr/share/bash-completion/completions/robotsproxy")
	if shell, err := exec.LookPath("bash"); err == nil {
		e2e.Finish(t, exec.Command(shell, "-n", bash)).Want(t, 0)
	}
	if !strings.Contains(e2e.ReadText(t, bash), "complete -o default -F __start_robotsproxy robotsproxy") {
		t.Error("bash is not told of completions")
	}
}
