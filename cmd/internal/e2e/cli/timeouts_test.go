package cli

import (
	"os/exec"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// timeOuts are commands that print the default timeout of a client, by the client's name
// in docs/clients.md.
var timeOuts = map[string]func(testing.TB) []string{
	"Scrapy":   e2e.NeedPython("scrapy", "-c", "from scrapy.settings.default_settings import DOWNLOAD_TIMEOUT as t; print(t, 's')"),
	"requests": e2e.NeedPython("requests", "-c", "import inspect, requests; print(inspect.signature(requests.Session.request).parameters['timeout'].default)"),
	"httpx":    e2e.NeedPython("httpx", "-c", "import httpx; print(int(httpx.Client().timeout.read), 's')"),
	"aiohttp":  e2e.NeedPython("aiohttp.client", "-c", "from aiohttp.client import DEFAULT_TIMEOUT as t; print(t.total, 's')"),
	"axios":    askModule("axios", "console.log(m.defaults.timeout)"),
	"Crawlee (HTTP crawlers)": askModule("@crawlee/cheerio",
		"console.log(new m.CheerioCrawler({}, new m.Configuration({ persistStorage: false })).navigationTimeoutMillis / 1000, 's')"),
	"R: download.file, url": func(t testing.TB) []string {
		t.Helper()
		return []string{e2e.NeedPeer(t, "Rscript"), "-e", `cat(getOption("timeout"), "s")`}
	},
}

func askModule(module, question string) func(testing.TB) []string {
	return func(t testing.TB) []string {
		t.Helper()
		return append(e2e.NeedModule(module)(t), "-e", "const m = require('"+module+"'); "+question)
	}
}

// The table of timeouts matches the installed clients, and marks those that are shorter
// than max_wait.
func TestTimeOutsOfClients(t *testing.T) {
	t.Parallel()
	rows := map[string][]string{}
	for line := range strings.Lines(e2e.ReadText(t, e2e.TreeRoot()+"/docs/clients.md")) {
		if cells := strings.Split(line, "|"); len(cells) == 6 {
			rows[strings.TrimSpace(cells[1])] = cells[2:]
		}
	}
	for client, need := range timeOuts {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			argv := need(t)
			row, ok := rows[client]
			if !ok {
				t.Fatal("docs/clients.md does not name it")
			}
			got := strings.TrimSpace(e2e.Finish(t, exec.Command(argv[0], argv[1:]...)).Want(t, 0).Stdout)
			if got == "None" || got == "0" {
				got = "none"
			}
			if want := strings.TrimSpace(row[1]); got != want {
				t.Errorf("%s by itself, docs/clients.md says %s", got, want)
			}
		})
	}
}
