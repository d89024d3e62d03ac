package robotstxt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestOneVerdictForTheSameBytes: the proxy, check, check --batch, POST /api/v1/explain and audit explain give
// one verdict for the same URL, whatever bytes it has, and the record has these bytes.
func TestOneVerdictForTheSameBytes(t *testing.T) {
	t.Parallel()
	const rules = "User-agent: *\nDisallow: /se%2Fcret\nDisallow: /x|y\nDisallow: /private/\nDisallow: /*%zz\nDisallow: /*\u00fc\nDisallow: /100%/\nDisallow: /*^\n"
	o := e2e.NewOrigin(t, "target", rules)
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"robots": e2e.Settings{"readings": "literal"}}))
	targets := append(testkit.Targets()[:30], "/private/100%", "/%2e./private/|", "/a\xffb^", "/a\xffb")
	targets = slices.DeleteFunc(targets, func(target string) bool { return strings.HasPrefix(target, "//") }) // a file of its own in check --robots
	w := p.Dial(t)
	var urls []string
	var batch strings.Builder
	for _, target := range targets {
		w.Send(t, "GET "+o.URL("http", target)+" HTTP/1.1", "Host: x", "User-Agent: FooBot/1.0")
		w.Receive(t, "GET")
		urls = append(urls, o.URL("http", target))
		if utf8.ValidString(target) {
			line, err := json.Marshal(map[string]string{"robots": rules, "user_agent": "FooBot/1.0", "url": o.URL("http", target)})
			testkit.Must(t, err)
			batch.Write(append(line, '\n'))
		}
	}
	var decided []string
	for i, url := range urls {
		var r e2e.Record
		testkit.Eventually(t, "the request is recorded", func() bool {
			all := slices.DeleteFunc(e2e.ReadAudit(t, p.Audit), func(r e2e.Record) bool { return r.Kind != "" })
			if len(all) > i {
				r = all[i]
			}
			return len(all) > i
		})
		if got := cmp.Or(string(r.URLBytes), r.URL); got != url {
			t.Errorf("the record of %q has %q", url, got)
		}
		decided = append(decided, r.Decision)
		if i%3 == 0 { // each takes a while
			p.Explain(t, r, 0)
		}
	}
	check := e2e.Prepare(t, append([]string{"check", "-c", p.Config, "-A", "FooBot/1.0", "--json"}, urls...)...)
	checked := strings.Split(strings.TrimSpace(e2e.Finish(t, check).Stdout), "\n")
	command := e2e.Prepare(t, "check", "--batch")
	command.Stdin = strings.NewReader(batch.String())
	batched := strings.Split(strings.TrimSpace(e2e.Finish(t, command).Want(t, 0).Stdout), "\n")
	for i, url := range urls {
		allow := fmt.Sprintf(`"allow":%t`, decided[i] == "allow")
		if !strings.Contains(checked[i], allow) {
			t.Errorf("%q: the proxy decided %s, check %s", url, decided[i], checked[i])
		}
		if !utf8.ValidString(url) { // no JSON
			continue
		}
		if !strings.Contains(batched[0], allow) {
			t.Errorf("%q: the proxy decided %s, check --batch %s", url, decided[i], batched[0])
		}
		batched = batched[1:]
		body, err := json.Marshal(map[string]string{"url": url, "user_agent": "FooBot/1.0"})
		testkit.Must(t, err)
		if x := e2e.API[struct{ Decision, URL string }](t, p, "POST", "explain", string(body), 200); x.Decision != decided[i] || x.URL != url {
			t.Errorf("%q: the proxy decided %s, explain %+v", url, decided[i], x)
		}
	}
}
