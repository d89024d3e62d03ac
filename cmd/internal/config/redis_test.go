package config

import (
	"strings"
	"testing"
)

// What is taken is what the driver can do something with; nothing of it is shown that
// might be a password.
func TestRedisURLs(t *testing.T) {
	for give, shown := range map[string]string{
		"":                                     "",
		"redis://redis.example":                "redis://redis.example",
		"redis://127.0.0.1:6379/3":             "redis://127.0.0.1:6379/3",
		"redis://[2001:db8::1]":                "redis://[2001:db8::1]",
		"redis://redis.example/?db=2":          "redis://redis.example/?db=2",
		"redis://:s3cret@redis.example":        "redis://:xxxxx@redis.example",
		"rediss://we:s3cret%40@redis.example/": "rediss://we:xxxxx@redis.example/",
		"redis://we:@redis.example":            "redis://we:xxxxx@redis.example",
		"unix:///run/redis/redis.sock":         "unix:///run/redis/redis.sock",
		"unix://we:s3cret@/run/r.sock?db=1":    "unix://we:xxxxx@/run/r.sock?db=1",
		"redis://:s3cret@a.example:26379?master_name=m&addr=b.example:26379&username=we&password=s3cret&db=0": "redis://:xxxxx@a.example:26379?addr=b.example%3A26379&db=0&master_name=m&password=xxxxx&username=we",
	} {
		c := parse(t, "store: {redis: \""+give+"\"}")
		if c.Store.Redis != give {
			t.Errorf("%s is read as %s", give, c.Store.Redis)
		}
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", give, err)
		}
		if got := c.Redacted().Store.Redis; got != shown {
			t.Errorf("%s is shown as %s, want %s", give, got, shown)
		}
		if again := parse(t, string(c.Redacted().Marshal())); again.Store.Redis != shown {
			t.Errorf("what is shown is read again as %s, want %s", again.Store.Redis, shown)
		}
	}
	c := Default()
	c.Store.Redis = "http://:s3cret@redis.example"
	if err := c.Check(); err == nil || !strings.HasPrefix(err.Error(), "store.redis: ") || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
	if got := Changes(Default(), c)[0].String(); got != `store.redis: changed from "" to (hidden): needs a restart` {
		t.Error(got)
	}
}
