package policy_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"robotsproxy/policy"
	"robotsproxy/robots/cache"
)

func hashOf(t testing.TB, password string, cost int) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), cost)
	if err != nil {
		t.Fatal(err)
	}
	return string(h)
}

func networks(all ...string) (parsed []netip.Prefix) {
	for _, n := range all {
		parsed = append(parsed, netip.MustParsePrefix(n))
	}
	return parsed
}

func offered(name, password string) policy.Login {
	return policy.Login{Offered: true, Name: name, Password: password}
}

const (
	inside  = "192.0.2.7"    // the networks of two clients
	within  = "192.0.2.200"  // and of a third, named later
	outside = "198.51.100.1" // in no client's network
)

func TestAdmitByNetwork(t *testing.T) {
	byNetwork := []policy.Client{{Name: "net", Networks: networks("192.0.2.0/24", "2001:db8::/32")}}
	admit(t, []admitSet{
		{"no clients", nil, []admitCase{
			{"anybody", outside, policy.Login{}, outside, nil, ""},
			{"credentials are not looked at", outside, offered("a", "b"), outside, nil, ""},
			{"an address that is none", "@", policy.Login{}, "@", nil, ""},
		}},
		{"networks only", byNetwork, []admitCase{
			{"inside", inside, policy.Login{}, "net", nil, ""},
			{"inside, IPv6 with a zone", "2001:db8::1%eth0", policy.Login{}, "net", nil, ""},
			{"inside, IPv4-mapped", "::ffff:192.0.2.7", policy.Login{}, "net", nil, ""},
			{"outside", outside, policy.Login{}, "", policy.ErrStranger, outside},
			{"an address that is none", "@", policy.Login{}, "", policy.ErrStranger, "@"},
			{"credentials that nobody asks for", inside, offered("net", "secret"), "net", nil, ""},
			{"they do not help either", outside, offered("net", "secret"), "", policy.ErrStranger, outside},
		}},
	})
}

func TestAdmitByPassword(t *testing.T) {
	hash := hashOf(t, "secret", bcrypt.MinCost)
	long := strings.Repeat("x", 72)
	byPassword := []policy.Client{{Name: "pass", PasswordHash: hash}}
	admit(t, []admitSet{
		{"password only", byPassword, []admitCase{
			{"right", outside, offered("pass", "secret"), "pass", nil, ""},
			{"right, from an address that is none", "@", offered("pass", "secret"), "pass", nil, ""},
			{"wrong password", outside, offered("pass", "Secret"), "", policy.ErrLogin, ""},
			{"wrong name", outside, offered("Pass", "secret"), "", policy.ErrLogin, ""},
			{"another's name", outside, offered("net", "secret"), "", policy.ErrLogin, ""},
			{"none", outside, policy.Login{}, "", policy.ErrLogin, outside},
			{"malformed", outside, policy.Login{Offered: true}, "", policy.ErrLogin, ""},
			{"empty password", outside, offered("pass", ""), "", policy.ErrLogin, ""},
			{"empty name", outside, offered("", "secret"), "", policy.ErrLogin, ""},
			{"its hash for a password", outside, offered("pass", hash), "", policy.ErrLogin, ""},
			{"a control character", outside, offered("pass", "secret\x00"), "", policy.ErrLogin, ""},
			{"bcrypt reads in a circle: NUL would close it", outside, offered("pass", "secret\x00secret"), "", policy.ErrLogin, ""},
		}},
		{"an empty password is nobody's, whatever its hash", []policy.Client{{Name: "pass", PasswordHash: hashOf(t, "", bcrypt.MinCost)}}, []admitCase{
			{"empty", outside, offered("pass", ""), "", policy.ErrLogin, ""},
		}},
		{"72 bytes", []policy.Client{{Name: "pass", PasswordHash: hashOf(t, long, bcrypt.MinCost)}}, []admitCase{
			{"are a password", outside, offered("pass", long), "pass", nil, ""},
			{"73 that begin like it are not", outside, offered("pass", long+"x"), "", policy.ErrLogin, ""},
			{"71 are not", outside, offered("pass", long[1:]), "", policy.ErrLogin, ""},
		}},
		{"any script", []policy.Client{{Name: "Viện 2", PasswordHash: hashOf(t, "mật khẩu 🔑", bcrypt.MinCost)}}, []admitCase{
			{"right", outside, offered("Viện 2", "mật khẩu 🔑"), "Viện 2", nil, ""},
			{"wrong", outside, offered("Vien 2", "mật khẩu 🔑"), "", policy.ErrLogin, ""},
		}},
	})
}

func TestAdmitByNetworkAndPassword(t *testing.T) {
	hash := hashOf(t, "secret", bcrypt.MinCost)
	byBoth := []policy.Client{{Name: "both", Networks: networks("192.0.2.0/24"), PasswordHash: hash}}
	all := []policy.Client{
		{Name: "both", Networks: networks("192.0.2.0/24"), PasswordHash: hash},
		{Name: "net", Networks: networks("192.0.2.0/24")},
		{Name: "late", Networks: networks("192.0.2.128/25")},
		{Name: "other", Networks: networks("192.0.2.128/25"), PasswordHash: hashOf(t, "other secret", bcrypt.MinCost+1)},
	}
	admit(t, []admitSet{
		{"both", byBoth, []admitCase{
			{"right, inside", inside, offered("both", "secret"), "both", nil, ""},
			{"right, outside: where no password would help, none is looked at", outside, offered("both", "secret"), "", policy.ErrStranger, outside},
			{"wrong, inside", inside, offered("both", "Secret"), "", policy.ErrLogin, ""},
			{"none, inside", inside, policy.Login{}, "", policy.ErrLogin, inside},
			{"none, outside", outside, policy.Login{}, "", policy.ErrStranger, outside},
		}},
		{"all sorts", all, []admitCase{
			{"no credentials: the first without a password", within, policy.Login{}, "net", nil, ""},
			{"credentials come before a network", within, offered("other", "other secret"), "other", nil, ""},
			{"whichever entry is first", within, offered("both", "secret"), "both", nil, ""},
			{"wrong ones too", within, offered("both", "other secret"), "", policy.ErrLogin, ""},
			{"nobody can log in as one without a password", within, offered("net", "secret"), "", policy.ErrLogin, ""},
			{"none, outside", outside, policy.Login{}, "", policy.ErrStranger, outside},
			{"right, outside", outside, offered("both", "secret"), "", policy.ErrStranger, outside},
		}},
		{"from two networks", all, []admitCase{
			{"right, in another's", inside, offered("other", "other secret"), "", policy.ErrLogin, ""},
			{"and then in its own", within, offered("other", "other secret"), "other", nil, ""},
		}},
	})
}

// An admitSet is a set of requests to a proxy with these clients.
type admitSet struct {
	name    string
	clients []policy.Client
	cases   []admitCase
}

// admit compares the result of Admit with the expected one for each case, with a closed and an
// open proxy.
func admit(t *testing.T, sets []admitSet) {
	for _, set := range sets {
		for _, open := range []bool{false, true} {
			e := engine(t, file(rules), policy.Options{Clients: set.clients, Open: open})
			for _, c := range set.cases {
				if open && c.open != "" {
					c.name, c.client, c.err = c.name+" (open)", c.open, nil
				}
				t.Run(set.name+"/"+c.name, func(t *testing.T) {
					for range 2 { // first checked, then remembered
						client, err := e.Admit(t.Context(), c.address, c.login)
						if client != c.client || !errors.Is(err, c.err) || c.err == nil && err != nil {
							t.Errorf("%q, %v; want %q, %v", client, err, c.client, c.err)
						}
						if err != nil && c.login.Password != "" && strings.Contains(err.Error(), c.login.Password) {
							t.Errorf("the password is in the error: %v", err)
						}
					}
				})
			}
		}
	}
}

type admitCase struct {
	name, address string
	login         policy.Login
	client        string
	err           error
	open          string // the client if unknown clients are admitted; "": the same
}

// TestHashes: the three prefixes that are written today are one algorithm. The
// vector is crypt_blowfish's.
func TestHashes(t *testing.T) {
	for _, prefix := range []string{"$2a$", "$2b$", "$2y$"} {
		e := engine(t, file(rules), policy.Options{Clients: []policy.Client{
			{Name: "a", PasswordHash: prefix + "05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"},
		}})
		if name, err := e.Admit(t.Context(), outside, offered("a", "U*U")); name != "a" || err != nil {
			t.Errorf("%s: %q, %v", prefix, name, err)
		}
		if _, err := e.Admit(t.Context(), outside, offered("a", "U*V")); !errors.Is(err, policy.ErrLogin) {
			t.Errorf("%s: a wrong one: %v", prefix, err)
		}
	}
}

func TestNewRefusesBadClients(t *testing.T) {
	hash := hashOf(t, "secret", bcrypt.MinCost)
	robotsCache, err := cache.New(cache.Options{Fetcher: file(rules)})
	if err != nil {
		t.Fatal(err)
	}
	for name, clients := range map[string][]policy.Client{
		"no name":               {{Networks: networks("192.0.2.0/24")}},
		"everybody":             {{Name: "a"}},
		"two of one name":       {{Name: "a", PasswordHash: hash}, {Name: "a", Networks: networks("192.0.2.0/24")}},
		"a name with a colon":   {{Name: "a:b", PasswordHash: hash}},
		"a name with a line":    {{Name: "a\nb", PasswordHash: hash}},
		"a password for a hash": {{Name: "a", PasswordHash: "secret"}},
		"half a hash":           {{Name: "a", PasswordHash: hash[:59]}},
		"more than a hash":      {{Name: "a", PasswordHash: hash + "."}},
		"no cost":               {{Name: "a", PasswordHash: "$2y$xx" + hash[6:]}},
	} {
		_, err := policy.New(policy.Options{Cache: robotsCache, Clients: clients})
		if err == nil {
			t.Errorf("%s: made", name)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the password is in the error: %v", name, err)
		}
	}
}

func TestALeavingClientDoesNotWait(t *testing.T) {
	e := engine(t, file(rules), policy.Options{Clients: []policy.Client{{Name: "a", PasswordHash: hashOf(t, "secret", bcrypt.MinCost)}}})
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if _, err := e.Admit(ctx, outside, offered("a", "secret")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if name, err := e.Admit(t.Context(), outside, offered("a", "secret")); name != "a" || err != nil {
		t.Errorf("and the next: %q, %v", name, err)
	}
}

func TestAdmitByNetworkAllocatesNothing(t *testing.T) {
	e := engine(t, file(rules), policy.Options{Clients: []policy.Client{{Name: "net", Networks: networks("192.0.2.0/24")}}})
	n := testing.AllocsPerRun(100, func() {
		if name, err := e.Admit(t.Context(), inside, policy.Login{}); name != "net" || err != nil {
			t.Fatalf("%q, %v", name, err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkAdmit is what a request costs whose client is known already.
func BenchmarkAdmit(b *testing.B) {
	e := engine(b, file(rules), policy.Options{Clients: []policy.Client{
		{Name: "net", Networks: networks("192.0.2.0/24")},
		{Name: "pass", PasswordHash: hashOf(b, "secret", bcrypt.DefaultCost)},
	}})
	for _, c := range []struct {
		name, address string
		login         policy.Login
	}{
		{"network", inside, policy.Login{}},
		{"password", outside, offered("pass", "secret")},
		{"wrong password", outside, offered("pass", "wrong")},
		{"stranger", outside, policy.Login{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e.Admit(b.Context(), c.address, c.login)
			}
		})
	}
}
