package admin

import (
	"net/http"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"
)

func TestWaitingNowNamesTheHost(t *testing.T) {
	w := newTestProxy(t, sampleFiles, func(o *Options) {
		o.PaceKey = func(host string) string { return strings.TrimPrefix(host, "www.") }
	})
	figures := func() string { return textOf(findOne(t, w.get(t, "/", http.StatusOK), "id", "figures")) }
	if got := figures(); !strings.Contains(got, "Waiting now00 in flight") {
		t.Errorf("without requests: %q", got)
	}
	w.visit(t, visit{client: "lab-a", url: "https://www.example.org/"}) // has the queue of example.org
	w.queueRequests(t, "shop.example.com", 2)
	w.queueRequests(t, "example.org", 3)
	testkit.Eventually(t, "five requests wait", func() bool { return w.pacer.Stats().Waiting == 5 })
	if got := figures(); !strings.Contains(got, "Waiting now53 for example.org; 2 in flight") {
		t.Errorf("with requests: %q", got)
	}
}
