package policy_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

func TestEntriesAreShownWhileTheyApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, file(""), policy.Options{Hosts: []policy.Host{
			{Match: "a.test", Paths: []string{"/a"}},
			{Match: "a.test", Robots: policy.Deny, Reason: "over soon", Until: time.Now().Add(time.Hour)}, {Match: "*.test", Robots: policy.Ignore, Reason: "agreed"},
		}})
		for _, want := range []string{"over soon", "agreed"} {
			if all := e.EntriesFor("a.test"); len(all) != 2 || all[0].Paths == nil || all[1].Reason != want {
				t.Errorf("%+v, want that of some paths, and %s", all, want)
			}
			<-time.After(time.Hour)
		}
		if all := e.EntriesFor("a.example"); all != nil {
			t.Errorf("%+v apply to another host", all)
		}
		if all := e.Entries(); len(all) != 3 || all[0].Match != "a.test" {
			t.Errorf("%+v", all)
		}
	})
}

func TestClientUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		google, err := robots.DialectByName("google")
		testkit.Must(t, err)
		here := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		e := engine(t, file(""), policy.Options{Clients: []policy.Client{
			{Name: "b", Networks: here, Quota: policy.Quota{Requests: 3}, Dialect: google}, {Name: "a", PasswordHash: "$2y$05$abcdefghijklmnopqrstuuW1EtsHQOUQ0MFbVGVyLLtfdGFHN6Aaa"},
		}})
		_, err = e.Take(t.Context(), by("b"))
		testkit.Must(t, err)
		all, open := e.ClientUses()
		if len(all) != 2 || open {
			t.Fatalf("%+v, open %v", all, open)
		}
		if b := all[0]; b.Name != "b" || b.Used.Requests != 1 || b.Login || b.Dialect.Name != google.Name {
			t.Errorf("%+v", b)
		}
		if a := all[1]; a.Name != "a" || a.Used != (policy.Use{}) || !a.Login || a.PasswordHash != "" || a.Dialect.Name != robots.Standard().Name {
			t.Errorf("%+v", a)
		}
		<-time.After(24 * time.Hour)
		if all, _ := e.ClientUses(); all[0].Used != (policy.Use{}) {
			t.Errorf("the next day: %+v", all[0])
		}
		if all, open := engine(t, file(""), policy.Options{}).ClientUses(); len(all) != 0 || !open {
			t.Errorf("no clients: %v, open %v", all, open)
		}
	})
}
