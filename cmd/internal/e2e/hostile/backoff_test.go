package hostile

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// rudeAgent is the client to which a site of rudeSite answers 429.
const rudeAgent = "RudeBot/1.0"

// rudeSite is an origin that asks one client to stay away for an hour and serves all others.
func rudeSite(t *testing.T, name string) *e2e.Origin {
	o := e2e.NewOrigin(t, name, "")
	o.Handle("/", func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() == rudeAgent {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	return o
}

// wantRefusal checks that a request is refused because of the back-off that another request caused, and that the client learns
// only the ID of that request.
func wantRefusal(t *testing.T, p *e2e.Proxy, c *http.Client, agent, url, by, secret string) {
	t.Helper()
	text := e2e.Get(t, c, url+"&text", "User-Agent", agent)
	if text.Status != http.StatusTooManyRequests || !strings.Contains(string(text.Body), "after a 429 or 503 to "+by+"\n") || strings.Contains(string(text.Body), secret) {
		t.Errorf("the refusal: %d\n%s", text.Status, text.Body)
	}
	got := e2e.Get(t, c, url+"&json", "User-Agent", agent, "Accept", "application/problem+json")
	var problem struct {
		Reason string
		Left   float64 `json:"back_off_s"`
		By     string  `json:"back_off_by"`
	}
	if err := json.Unmarshal(got.Body, &problem); err != nil || got.Status != http.StatusTooManyRequests || problem.Reason != "pace" || problem.By != by ||
		problem.Left < 3000 || strings.Contains(string(got.Body), secret) {
		t.Errorf("the refusal: %d %s", got.Status, got.Body)
	}
	if r := e2e.AwaitRecord(t, p.Audit, url+"&json"); r.BackOffBy != by || r.BackOff < 3000 || r.Reason != "pace" {
		t.Errorf("the record: %+v", r)
	}
}

// TestOneClientsBackOff: while a site serves others, its 429 to one client stops only that client. The operator sees which
// request was the cause, and ends the back-off.
func TestOneClientsBackOff(t *testing.T) {
	t.Parallel()
	const honestPages = 20
	o := rudeSite(t, "busy")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Named(honestAddress, hostileAddress)))
	honest, rude := p.Client(t, false), e2e.From(t, p.Client(t, false), hostileAddress)
	serve := func(query string) {
		t.Helper()
		if got := e2e.Get(t, honest, o.URL("http", "/?honest"+query), "User-Agent", honestAgent); got.Status != http.StatusOK {
			t.Errorf("an honest request: %v", got)
		}
	}
	serve("first")
	cause := o.URL("http", "/?cause")
	if got := e2e.Get(t, rude, cause, "User-Agent", rudeAgent); got.Status != http.StatusTooManyRequests || got.Header.Get("Retry-After") != "3600" {
		t.Fatalf("%v, want the origin's own 429", got)
	}
	first := e2e.AwaitRecord(t, p.Audit, cause)
	if first.BackOffBy != first.ID || first.BackOff < 3000 {
		t.Errorf("the record of the cause: %+v", first)
	}
	wantRefusal(t, p, rude, rudeAgent, o.URL("http", "/?refused"), first.ID, "cause")
	for range honestPages {
		serve("")
	}

	type host struct {
		Clients []struct {
			Client string
			By     string `json:"back_off_by"`
		} `json:"client_back_offs"`
	}
	path := "hosts/" + strings.Split(o.Hostport("http"), ":")[0]
	if got := e2e.API[host](t, p, "GET", path, "", 200).Clients; len(got) != 1 || got[0].Client != "client-"+hostileAddress || got[0].By != first.ID {
		t.Errorf("the host in the API: %+v", got)
	}
	if got := e2e.API[struct{ Ended bool }](t, p, "DELETE", path+"/back-off", "", 200); !got.Ended {
		t.Error("there was no back-off")
	}
	repeated := o.URL("http", "/?repeated")
	if got := e2e.Get(t, rude, repeated, "User-Agent", rudeAgent); got.Header.Get("Retry-After") != "3600" {
		t.Errorf("%v, want the origin's own 429", got)
	}
	second := e2e.AwaitRecord(t, p.Audit, repeated)
	wantRefusal(t, p, honest, honestAgent, o.URL("http", "/?everybody"), second.ID, "repeated") // the site may mean everybody

	served, rudes := 0, 0
	for _, h := range o.Pages("http") {
		if strings.Contains(h.Path, "honest") {
			served++
		} else {
			rudes++
		}
	}
	if served != 1+honestPages || rudes != 2 {
		t.Errorf("the site got %d honest requests and %d others, want %d and 2", served, rudes, 1+honestPages)
	}
	ended := 0
	for _, r := range e2e.ReadLines(t, p.Audit) {
		if r.Event == "back-off-ended" && strings.HasSuffix(r.Detail, " "+path[len("hosts/"):]) {
			ended++
		}
	}
	if ended != 1 {
		t.Errorf("%d events about the end of the back-off, want 1", ended)
	}
}

// TestBackOffOfAnOnlyClient: nothing shows that the site serves others, so its 429 stops all clients.
func TestBackOffOfAnOnlyClient(t *testing.T) {
	t.Parallel()
	o := rudeSite(t, "alone")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Named(honestAddress, hostileAddress)))
	rude, other := e2e.From(t, p.Client(t, false), hostileAddress), p.Client(t, false)
	if got := e2e.Get(t, rude, o.URL("http", "/?served"), "User-Agent", honestAgent); got.Status != http.StatusOK {
		t.Fatal(got)
	}
	cause := o.URL("http", "/?cause")
	if got := e2e.Get(t, rude, cause, "User-Agent", rudeAgent); got.Status != http.StatusTooManyRequests {
		t.Fatal(got)
	}
	id := e2e.AwaitRecord(t, p.Audit, cause).ID
	wantRefusal(t, p, rude, rudeAgent, o.URL("http", "/?refused"), id, "cause")
	wantRefusal(t, p, other, honestAgent, o.URL("http", "/?other"), id, hostileAddress)
	if n := len(o.Pages("http")); n != 2 {
		t.Errorf("the site got %d requests, want 2", n)
	}
	type host struct {
		Pace struct {
			By string `json:"back_off_by"`
		}
	}
	if got := e2e.API[host](t, p, "GET", "hosts/"+strings.Split(o.Hostport("http"), ":")[0], "", 200).Pace.By; got != id {
		t.Errorf("the API names %q as the cause, want %q", got, id)
	}
}
