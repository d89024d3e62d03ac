package doctor

import (
	"strings"
	"testing"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/robots/testkit"
)

func TestDoctorStore(t *testing.T) {
	testkit.Long(t, "real peers")
	t.Parallel()
	good := redistest.Start(t)
	evicting := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl")
	locked := redistest.Start(t, "--requirepass", "s3cret")
	for _, c := range []struct {
		name  string
		store config.Store
		want  cli.Status
		says  string
	}{
		{"none", config.Store{Replicas: 1}, cli.StatusSkip, "store.redis is not set"},
		{"good", config.Store{Redis: good.URL(), Replicas: 3}, cli.StatusOK, " answers in "},
		{"one replica", config.Store{Redis: good.URL(), Replicas: 1}, cli.StatusWarn, "store.replicas is 1"},
		{"it forgets", config.Store{Redis: evicting.URL(), Replicas: 3}, cli.StatusWarn, "its maxmemory-policy is volatile-ttl"},
		{"away", config.Store{Redis: "redis://" + testkit.DeadEnd(t, "127.0.0.1"), Replicas: 3}, cli.StatusFail, "is unavailable: the server cannot be reached"},
		{"wrong password", config.Store{Redis: "redis://:s3cretly@" + locked.Addr, Replicas: 3}, cli.StatusFail, "the password is wrong or missing"},
	} {
		d := doctorFor(t, "http://127.0.0.1:1")
		d.cfg.Store = c.store
		found := checkStore(t.Context(), d)
		if found.Status != c.want || !strings.Contains(found.Detail, c.says) || strings.Contains(found.Detail+found.Hint, "s3cret") {
			t.Errorf("%s: %+v, want %s: %s", c.name, found, c.want, c.says)
		}
	}
	for _, c := range []struct{ name, url, hint string }{
		{"away", "redis://" + testkit.DeadEnd(t, "127.0.0.1"), "start the server, or set its host and port in store.redis"},
		{"wrong password", "redis://:s3cretly@" + locked.Addr, "set its password in store.redis"},
		{"TLS to one in the clear", "rediss://" + good.Addr, "use rediss:// if it speaks TLS"},
		{"no such database", good.URL() + "/99", "name one of its databases"},
	} {
		d := doctorFor(t, "http://127.0.0.1:1")
		d.cfg.Store = config.Store{Redis: c.url, Replicas: 3}
		if found := checkStore(t.Context(), d); !strings.Contains(found.Hint, c.hint) || strings.Contains(found.Hint, "s3cret") {
			t.Errorf("%s: %+v, want %s", c.name, found, c.hint)
		}
	}
	d := doctorFor(t, "http://127.0.0.1:1")
	d.cfg.Store, d.remote = config.Store{Redis: good.URL(), Replicas: 3}, true
	if found := here(single(checkStore))(t.Context(), d)[0]; found.Status != cli.StatusSkip {
		t.Errorf("of another machine's proxy: %+v", found)
	}
}
