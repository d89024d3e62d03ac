package proxy_test

import (
	"net/http"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/storetest"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// TestStoreAwayIsInTheRecord covers requests that are paced while the shared store is unreachable.
func TestStoreAwayIsInTheRecord(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "0") })
	one := storetest.NewMemory(2).Join()
	r := start(t, setup{limits: noPacing, change: func(o *proxy.Options) { o.Pacer = pace.New(pace.Options{Store: one}) }})
	client := r.client(false)
	for i, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"shared", func() {}, false},
		{"unreachable", one.Disconnect, true},
		{"reachable again", one.Reconnect, false},
	} {
		step.do()
		_, _, err := get(client, origin.URL+"/")
		testkit.Must(t, err)
		if rec := r.records.last(t, i+1); rec.StoreAway != step.want {
			t.Errorf("%s: the record says %v", step.name, rec.StoreAway)
		}
	}
}

// TestStoreAwayIsInTheRecordOfARefusal checks the same for refused requests.
func TestStoreAwayIsInTheRecordOfARefusal(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "0") })
	one := storetest.NewMemory(2).Join()
	slow := noPacing
	slow.PerSecond, slow.Burst = 1/time.Hour.Seconds(), 1
	notAsked := entries(policy.Host{Match: "*", Robots: policy.Ignore, Reason: "a fetch would take the slot"})
	r := start(t, setup{limits: slow, policyOptions: notAsked, change: func(o *proxy.Options) { o.Pacer = pace.New(pace.Options{Store: one}) }})
	client := r.client(false)
	for i, step := range []struct {
		name   string
		do     func()
		status int
		want   bool
	}{
		{"a free slot", func() {}, http.StatusOK, false},
		{"shared", func() {}, http.StatusTooManyRequests, false},
		{"unreachable", one.Disconnect, http.StatusTooManyRequests, true},
		{"reachable again", one.Reconnect, http.StatusTooManyRequests, false},
	} {
		step.do()
		resp, _, err := get(client, origin.URL+"/")
		testkit.Must(t, err)
		if rec := r.records.last(t, i+1); resp.StatusCode != step.status || rec.Status != step.status || rec.StoreAway != step.want {
			t.Errorf("%s: %s, and the record says %v", step.name, resp.Status, rec.StoreAway)
		}
	}
}
