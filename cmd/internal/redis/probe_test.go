package redis

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/robots/testkit"
)

func TestLook(t *testing.T) {
	t.Parallel()
	for _, bin := range redistest.Binaries(t) {
		s := redistest.StartBinary(t, bin, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
		seen, err := probeServer(t.Context(), s.URL(), stillTime)
		if err != nil || seen.Server == "" || seen.Policy != "allkeys-lru" || !seen.Evicts || seen.ClockOffset.Abs() > time.Minute || seen.RoundTrip <= 0 {
			t.Errorf("%s: %+v, %v", bin, seen, err)
		}
		admin := goredis.NewClient(&goredis.Options{Addr: s.Addr})
		defer admin.Close()
		if n, err := admin.DBSize(t.Context()).Result(); n != 0 || err != nil {
			t.Errorf("%s: it has %d keys after a look, %v", bin, n, err)
		}
		if err := admin.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err(); err != nil {
			t.Fatal(err)
		}
		if seen, err := probeServer(t.Context(), s.URL(), stillTime); err != nil || seen.Evicts {
			t.Errorf("%s: %+v, %v", bin, seen, err)
		}
	}
}

// Probe reports with a Cause what prevents replicas from sharing a server.
func TestLookSaysWhyNot(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	locked := redistest.Start(t, "--requirepass", "s3cret")
	primary := redistest.Start(t)
	host, port, _ := strings.Cut(primary.Addr, ":")
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	limited := redistest.Start(t)
	admin := client(t, limited.URL())
	testkit.Must(t, admin.Do(t.Context(), "ACL", "SETUSER", "we", "on", ">s3cret", "+@all", "-@scripting", "~*").Err())
	testkit.Must(t, admin.Do(t.Context(), "ACL", "SETUSER", "elsewhere", "on", ">s3cret", "+@all", "~other:*").Err())
	full := redistest.Start(t)
	testkit.Must(t, client(t, full.URL()).ConfigSet(t.Context(), "maxmemory", "1").Err())
	frozen := redistest.Start(t)
	frozen.Stop()
	defer frozen.Continue()
	for name, c := range map[string]struct {
		url  string
		want string
	}{
		"nobody there":            {"redis://127.0.0.1:1", Refused.String()},
		"no password":             {"redis://" + locked.Addr, Password.String()},
		"another password":        {"redis://:s3cretly@" + locked.Addr, Password.String()},
		"the right one":           {"redis://:s3cret@" + locked.Addr, ""},
		"no scripts":              {"redis://we:s3cret@" + limited.Addr, Forbidden.String()},
		"no key of ours":          {"redis://elsewhere:s3cret@" + limited.Addr, Forbidden.String()},
		"full":                    {"redis://" + full.Addr, Full.String()},
		"no such database":        {"redis://" + primary.Addr + "/99", NoDatabase.String()},
		"no Redis":                {"redis://" + web.Listener.Addr().String(), NotRedis.String()},
		"a replica":               {"redis://" + replica.Addr, ReadOnly.String()},
		"no answer":               {"redis://" + frozen.Addr, TimedOut.String()},
		"no URL":                  {"redis://:s3%cret@" + locked.Addr, "not a URL"},
		"another's scheme":        {"http://:s3cret@" + locked.Addr, "invalid URL scheme"},
		"TLS to one in the clear": {"rediss://:s3cret@" + locked.Addr, ""},
	} {
		_, err := probeServer(t.Context(), c.url, stillTime)
		switch {
		case c.want == "" && name == "the right one":
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3") || strings.Contains(err.Error(), "\n"):
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}
