package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"robotsproxy/proxy/clientfault"
)

// TestClientsWhoseRequestsDoNotArrive checks that the overview shows those of the last hour, and the page of clients all, with
// what to do.
func TestClientsWhoseRequestsDoNotArrive(t *testing.T) {
	var faults []clientfault.Fault
	w := newTestProxy(t, nil, func(o *Options) { o.Faults = func() []clientfault.Fault { return faults } })
	if text := textOf(w.get(t, "/", http.StatusOK)); strings.Contains(text, "do not arrive") {
		t.Error("the overview has clients whose requests do not arrive, and there are none")
	}
	checkText(t, findOne(t, w.get(t, "/clients", http.StatusOK), "id", "faults"), "None since the start.")
	now := time.Now()
	faults = []clientfault.Fault{
		{Kind: clientfault.Distrust, Client: "lab-a", Host: "shop.example:8443", Count: 1234, Last: now},
		{Kind: clientfault.TLS, Client: "192.0.2.7", Count: 1, Last: now.Add(-5 * time.Minute)},
		{Kind: clientfault.MaybeDistrust, Client: "192.0.2.8", Host: "a.example", Count: 2, Last: now.Add(-2 * time.Hour)},
		{Kind: clientfault.PlainHTTP, Count: 3, Last: now.Add(-3 * time.Hour)},
	}
	part := findOne(t, w.get(t, "/", http.StatusOK), "id", "faults")
	checkText(t, part, "lab-a does not trust the proxy's CA (1,234 connections, ", "192.0.2.7 speaks TLS to the proxy's port, which expects plain HTTP (1 connection, 5 min ago).")
	if strings.Contains(textOf(part), "192.0.2.8") {
		t.Error("the overview shows a client of two hours ago")
	}
	if len(findAll(part, "href", "/clients#faults")) != 1 {
		t.Error("the overview does not lead to what to do")
	}
	doc := findOne(t, w.get(t, "/clients", http.StatusOK), "id", "faults")
	checkText(t, rowOf(t, doc, "lab-a"), "does not trust the proxy's CA", "robotsproxy ca install", "shop.example:8443", "1,234")
	checkText(t, rowOf(t, doc, "192.0.2.7"), "Use an http:// URL for the proxy.", "no tunnel", "1")
	checkText(t, rowOf(t, doc, "192.0.2.8"), "perhaps because", "2 h ago")
	checkText(t, rowOf(t, doc, "another client"), "speaks plain HTTP")
}
