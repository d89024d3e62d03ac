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

// A request that a replica paced without the others says so in its record, and one that
// they paced together does not.
func TestStoreAwayIsInTheRecord(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "0") })
	one := storetest.NewMemory(2).Join()
	r := start(t, setup{limits: noPacing, change: func(o *proxy.Options) { o.Pacer = pace.New(pace.Options{Store: one}) }})
	client := r.client(false)
	for i, turn := range []struct {
		name string
		do   func()
		want bool
	}{
		{"shared", func() {}, false},
		{"away", one.Disconnect, true},
		{"back", one.Reconnect, false},
	} {
		turn.do()
		_, _, err := get(client, origin.URL+"/")
		testkit.Must(t, err)
		if rec := r.records.last(t, i+1); rec.StoreAway != turn.want {
			t.Errorf("%s: the record says %v", turn.name, rec.StoreAway)
		}
	}
}

// One that is refused since its replica alone has no turn for it says so as well.
func TestStoreAwayIsInTheRecordOfARefusal(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "0") })
	one := storetest.NewMemory(2).Join()
	slow := noPacing
	slow.PerSecond, slow.Burst = 1/time.Hour.Seconds(), 1
	notAsked := entries(policy.Host{Match: "*", Robots: policy.Ignore, Reason: "a fetch would take the turn"})
	r := start(t, setup{limits: slow, policyOptions: notAsked, change: func(o *proxy.Options) { o.Pacer = pace.New(pace.Options{Store: one}) }})
	client := r.client(false)
	for i, turn := range []struct {
		name   string
		do     func()
		status int
		want   bool
	}{
		{"its turn", func() {}, http.StatusOK, false},
		{"shared", func() {}, http.StatusTooManyRequests, false},
		{"away", one.Disconnect, http.StatusTooManyRequests, true},
		{"back", one.Reconnect, http.StatusTooManyRequests, false},
	} {
		turn.do()
		resp, _, err := get(client, origin.URL+"/")
		testkit.Must(t, err)
		if rec := r.records.last(t, i+1); resp.StatusCode != turn.status || rec.Status != turn.status || rec.StoreAway != turn.want {
			t.Errorf("%s: %s, and the record says %v", turn.name, resp.Status, rec.StoreAway)
		}
	}
}
