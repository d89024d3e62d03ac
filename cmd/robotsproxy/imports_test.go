package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// mayImport lists, for each package of this module, the packages of this module that it
// may import directly. Imports point one way: robots ← fetch ← cache ← policy ← audit ←
// explain ← proxy ← cmd.
var mayImport = map[string][]string{
	"robots":                       {},
	"robots/internal/corpus":       {"robots"},
	"robots/tdmrep":                {"robots"},
	"robots/fetch":                 {"robots"},
	"robots/cache":                 {"robots", "robots/fetch", "robots/tdmrep"},
	"robots/cache/storetest":       {"robots", "robots/fetch", "robots/cache", "robots/testkit"},
	"policy/pace/limiter":          {},
	"policy/wake":                  {},
	"policy/pace":                  {"policy/pace/limiter", "policy/wake"},
	"policy/pace/ledger":           {"policy/pace", "policy/pace/limiter"},
	"policy/pace/storetest":        {"policy/pace", "policy/pace/limiter", "policy/pace/ledger", "robots/testkit"},
	"policy/memory":                {},
	"policy/usage":                 {"robots"},
	"policy/labels":                {},
	"policy/hours":                 {},
	"policy/stops":                 {"policy/wake", "robots"},
	"policy":                       {"policy/explain/humanize", "policy/hours", "policy/labels", "policy/stops", "robots", "robots/fetch", "robots/cache", "robots/tdmrep", "policy/pace", "policy/usage"},
	"policy/osfile":                {},
	"policy/audit/trail":           {"policy/osfile"},
	"policy/audit/tree":            {"policy/audit/trail", "policy/osfile"},
	"policy/audit/checkpoint":      {},
	"policy/audit/coverage":        {"policy/audit/checkpoint", "policy/audit/trail", "policy/audit/tree"},
	"policy/audit/tsa":             {"policy/audit/trail", "policy/osfile"},
	"policy/audit/bundle":          {"robots", "policy", "policy/labels", "policy/audit/checkpoint", "policy/audit/trail", "policy/audit/tree", "policy/audit/tsa", "policy/explain/humanize"},
	"policy/audit/snapshot":        {"robots", "robots/fetch", "robots/cache", "policy", "policy/audit", "policy/audit/trail", "policy/explain/humanize", "policy/osfile", "policy/wake"},
	"policy/audit/report":          {"policy", "policy/labels", "policy/audit/trail", "policy/explain", "policy/explain/humanize", "robots/cache"},
	"policy/audit":                 {"policy", "policy/stops", "policy/usage", "policy/audit/checkpoint", "policy/audit/trail", "policy/audit/tree", "policy/explain/humanize", "policy/osfile", "policy/wake", "robots/fetch", "robots/cache"},
	"policy/explain":               {"robots", "robots/cache", "policy", "policy/usage", "policy/audit/trail", "policy/explain/humanize"},
	"policy/explain/humanize":      {},
	"policy/audit/live":            {"policy", "policy/audit", "policy/audit/trail", "policy/explain"},
	"proxy/archive":                {"robots", "policy/audit", "policy/memory", "policy/explain/humanize", "policy/osfile", "proxy/archive/warc"},
	"proxy/egress":                 {"robots", "policy/memory", "proxy/h1", "proxy/h2", "proxy/socket", "proxy/egress/ftp"},
	"proxy/egress/ftp":             {"robots"},
	"robots/testkit":               {},
	"robots/testkit/testca":        {"robots/testkit"},
	"proxy/egress/dnstest":         {},
	"proxy/egress/ftptest":         {},
	"proxy/egress/parenttest":      {},
	"proxy/h1":                     {},
	"proxy/h2":                     {},
	"proxy/clientfault":            {"policy"},
	"proxy/mitm":                   {"robots", "policy/osfile", "proxy/socket"},
	"proxy/archive/warc":           {},
	"proxy/signature":              {"robots"},
	"proxy/socket":                 {},
	"proxy/guide":                  {"robots"},
	"proxy/inbound":                {"policy/memory", "proxy/egress/ftp", "proxy/h1", "proxy/h2", "proxy/mitm", "proxy/socket", "robots"},
	"proxy":                        {"policy", "policy/labels", "policy/audit", "policy/explain", "policy/explain/humanize", "policy/memory", "policy/pace", "proxy/archive", "proxy/archive/warc", "proxy/clientfault", "proxy/egress", "proxy/egress/ftp", "proxy/guide", "proxy/inbound", "proxy/mitm", "proxy/signature", "proxy/socket", "robots", "robots/cache", "robots/fetch"},
	"cmd/internal/admin":           {"robots", "robots/fetch", "robots/cache", "policy", "policy/pace", "policy/stops", "policy/audit", "policy/audit/live", "policy/audit/trail", "policy/explain", "policy/explain/humanize", "proxy/archive", "proxy/clientfault", "proxy/guide", "cmd/internal/notary", "cmd/internal/redis"},
	"cmd/internal/notary":          {"policy/audit", "policy/audit/checkpoint", "policy/audit/tsa", "policy/osfile", "proxy/mitm"},
	"cmd/internal/config":          {"robots", "policy/hours", "policy/labels", "policy/usage"},
	"cmd/internal/prom":            {"robots", "robots/fetch", "robots/cache", "policy", "policy/memory", "policy/pace", "policy/stops", "policy/usage", "policy/audit", "policy/audit/snapshot", "proxy", "proxy/archive", "proxy/egress", "proxy/inbound", "proxy/mitm", "cmd/internal/bolt", "cmd/internal/notary", "cmd/internal/redis"},
	"cmd/internal/pacefile":        {"policy/osfile", "policy/pace", "policy/pace/limiter", "policy/pace/ledger", "policy/wake"},
	"cmd/internal/seal":            {},
	"cmd/internal/bolt":            {"cmd/internal/seal", "robots/cache", "policy/osfile", "policy/pace", "policy/wake", "policy/audit/trail", "proxy/archive"},
	"cmd/internal/filestore":       {"cmd/internal/seal", "robots/cache", "policy/osfile", "policy/wake"},
	"cmd/internal/redis":           {"policy", "policy/stops", "robots", "robots/cache", "policy/pace", "policy/wake", "proxy/socket"},
	"cmd/internal/redis/redistest": {"robots/testkit"},
	"cmd/internal/e2e":             {"policy/osfile", "robots/testkit", "proxy/egress/ftptest"},
}

// commands are the packages of the command line. Each may import the ones before it, and all
// packages that are none of these.
var commands = []string{
	"cmd/internal/version", "cmd/internal/cli", "cmd/internal/castore", "cmd/internal/confine", "cmd/internal/daemon",
	"cmd/internal/checkcmd", "cmd/internal/archivecmd", "cmd/internal/auditcmd", "cmd/internal/identity", "cmd/internal/runner", "cmd/internal/doctor", "cmd/internal/manual", "cmd/robotsproxy",
}

// e2e is code for tests alone: only they import it.
const e2e = "cmd/internal/e2e"

// keptIn says which library, with all below it, is known to one package alone, and to
// those below that.
var keptIn = map[string]string{
	"github.com/elazarl/goproxy":    "proxy",
	"github.com/jlaffaye/ftp":       "proxy/egress/ftp",
	"github.com/digitorus":          "policy/audit/tsa",
	"golang.org/x/crypto/bcrypt":    "policy",
	"golang.org/x/net/publicsuffix": "policy",
	"gopkg.in/yaml.v3":              "cmd/internal/config",
	"github.com/prometheus":         "cmd/internal/prom",
	"go.etcd.io/bbolt":              "cmd/internal/bolt",
	"github.com/redis/go-redis":     "cmd/internal/redis",
	"github.com/fsnotify/fsnotify":  "cmd/internal/daemon",
	"github.com/coreos/go-systemd":  "cmd/internal/daemon",
	"github.com/google/nftables":    "cmd/internal/confine",
	"github.com/mdlayher":           "cmd/internal/confine",
	"github.com/smallstep":          "cmd/internal/castore",
}

func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "robotsproxy/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, "robotsproxy/")
		if strings.HasPrefix(name, "cmd/internal/e2e/") {
			continue // they have no code but tests
		}
		allowed, known := mayImport[name]
		layer := slices.Index(commands, name)
		if !known && layer < 0 {
			t.Errorf("%s is not known here: say what it may import", name)
		}
		for _, imp := range p.Imports {
			for library, home := range keptIn {
				if name != e2e && !strings.HasPrefix(name+"/", home+"/") && strings.HasPrefix(imp+"/", library+"/") {
					t.Errorf("%s imports %s, which is known to %s and below alone", name, imp, home)
				}
			}
			ours, ok := strings.CutPrefix(imp, "robotsproxy/")
			if ok && known && !slices.Contains(allowed, ours) || layer >= 0 && slices.Index(commands, ours) >= layer {
				t.Errorf("%s imports %s", name, ours)
			}
		}
	}
}
