package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// check is a range of allowed values.
type check struct {
	// allowed completes "must be …". The reference shows it as it is.
	allowed string

	// The bounds of the value: a number, nanoseconds, bytes, or the length of a list.
	bounds

	// also is a value out of the bounds that is allowed too, as a number; nil: none.
	also *float64
}

// checks holds each check under the name in the check tag of a field.
var checks = map[string]check{
	"positive":     {allowed: "more than 0s", bounds: bounds{1, math.Inf(1)}},
	"not-negative": atLeast(time.Duration(0)),
	"anchor":       atLeast(minAnchor),
	"retry":        {allowed: "more than 0s and at most " + textOf(maxRetry), bounds: bounds{1, float64(maxRetry)}},
	"signature":    between(minSignature, maxSignature),
	"rate":         {allowed: "between " + rates, bounds: bounds{minRate, maxRate}},
	"rate-or-0":    {allowed: "0, or between " + rates, bounds: bounds{minRate, maxRate}, also: new(float64)},
	"count":        between(1, maxCount),
	"count-or-0":   between(0, maxCount),
	"quota":        between(0, maxQuota),
	"replicas":     between(1, maxReplicas),
	"url":          between(minURL, maxURL),
	"file-size":    atLeast(minFile),
	"folder-size":  atLeast(minFolder),
	"memory":       {allowed: "at least " + textOf(minMemory), bounds: bounds{float64(minMemory), math.Inf(1)}, also: new(float64(Auto))},
	"some":         {allowed: "a list of at least one item", bounds: bounds{1, math.Inf(1)}},
}

const (
	maxRetry = 30 * time.Minute

	// The clocks of two machines differ.
	minSignature = 10 * time.Second
	maxSignature = 24 * time.Hour

	minAnchor = time.Hour

	// One request in eleven days: the interval still fits a time.Duration.
	minRate = 1e-6
	// An interval of one nanosecond.
	maxRate = 1e9

	maxCount    = 1 << 20
	maxQuota    = 1_000_000_000
	maxReplicas = 10_000

	minURL, maxURL Size = 1 << 10, 64 << 10

	// A smaller file holds only a few records.
	minFile Size = 64 << 10
	// The largest robots.txt must fit.
	minFolder Size = 1 << 20
	// The process takes about 20 MiB without any request.
	minMemory AutoSize = 64 << 20
)

// rates is the range of a rate, without exponents.
var rates = strconv.FormatFloat(minRate, 'f', -1, 64) + " and " + strconv.FormatFloat(maxRate, 'f', -1, 64)

func atLeast[T time.Duration | Size](least T) check {
	return check{allowed: "at least " + textOf(least), bounds: bounds{float64(least), math.Inf(1)}}
}

func between[T int | time.Duration | Size](least, most T) check {
	return check{allowed: "between " + textOf(least) + " and " + textOf(most), bounds: bounds{float64(least), float64(most)}}
}

// holds reports whether v is allowed. NaN is not.
func (c check) holds(v reflect.Value) bool {
	var n float64
	switch {
	case v.CanFloat():
		n = v.Float()
	case v.CanInt():
		n = float64(v.Int())
	default:
		n = float64(v.Len())
	}
	return n >= c.least && n <= c.most || c.also != nil && n == *c.also
}

// rule is a constraint between keys. It is not checked if one of the keys is invalid by itself.
type rule struct {
	// The error names the first key, at the line of the first of the keys that the file has.
	keys []string

	// broken returns what is wrong, "" for nothing.
	broken func(Config) string
}

var rules = []rule{
	forClients("listen"),
	forClients("listen_transparent"),
	{[]string{"listen_transparent"}, func(c Config) string {
		if c.ListenTransparent == "" || runtime.GOOS == "linux" {
			return ""
		}
		return "redirected connections need Linux"
	}},
	apart("admin.listen", "listen"),
	apart("admin.metrics_listen", "listen"),
	apart("admin.metrics_listen", "admin.listen"),
	{[]string{"admin.metrics_listen"}, func(c Config) string {
		if !strings.HasPrefix(c.Admin.MetricsListen, ":") {
			return ""
		}
		const why = "%q names no host, so every machine could read the metrics: use 127.0.0.1%[1]s, or 0.0.0.0%[1]s if that is intended"
		return fmt.Sprintf(why, c.Admin.MetricsListen)
	}},
	{[]string{"admin.listen", "admin.token"}, func(c Config) string {
		if c.Admin.Listen == "" || loopback(c.Admin.Listen) || c.Admin.Token != "" {
			return ""
		}
		const why = "%q is not a loopback address, so other machines could control the proxy: set admin.token"
		return fmt.Sprintf(why, c.Admin.Listen)
	}},
	{[]string{"robots.min_age", "robots.max_age"}, func(c Config) string {
		if c.Robots.MinAge <= c.Robots.MaxAge {
			return ""
		}
		return fmt.Sprintf("must be at most robots.max_age (%s), got %s", textOf(c.Robots.MaxAge), textOf(c.Robots.MinAge))
	}},
	{[]string{"usage.on_unknown", "usage.on_disallowed"}, func(c Config) string {
		if c.Usage.OnUnknown == "allow" || c.Usage.OnDisallowed == "refuse" {
			return ""
		}
		return "refuse needs usage.on_disallowed: refuse"
	}},
	holdsFile("audit.max_total_size", "audit.max_size", func(c Config) (AutoSize, Size) { return c.Audit.MaxTotalSize, c.Audit.MaxSize }),
	holdsFile("archive.max_total_size", "archive.max_file", func(c Config) (AutoSize, Size) {
		return c.Archive.MaxTotalSize, c.Archive.MaxFile
	}),
	{[]string{"store.replicas", "store.redis"}, func(c Config) string {
		if c.Store.Replicas == 1 || c.Store.Redis != "" {
			return ""
		}
		return fmt.Sprintf("%d replicas need a shared store: set store.redis", c.Store.Replicas)
	}},
	{[]string{"hosts"}, func(c Config) string {
		for i, host := range c.Hosts {
			before := slices.IndexFunc(c.Hosts[:i], func(b Host) bool {
				return b.Until.IsZero() && (b.Match == "*" || strings.EqualFold(b.Match, host.Match))
			})
			if before >= 0 {
				return fmt.Sprintf("entry %d never applies: entry %d before it matches the same hosts", i+1, before+1)
			}
		}
		return ""
	}},
	{[]string{"clients"}, func(c Config) string {
		first := map[string]int{}
		for i, client := range c.Clients {
			if at, twice := first[client.Name]; twice {
				return fmt.Sprintf("entries %d and %d have the same name: %q", at+1, i+1, client.Name)
			}
			first[client.Name] = i
		}
		return ""
	}},
	{[]string{"audit.anchor.file", "audit.anchor.tsa", "audit.sync", "audit.file"}, func(c Config) string {
		if c.Audit.Anchor.File == "" && c.Audit.Anchor.TSA == "" || c.Audit.Sync != "none" && c.Audit.File != "-" {
			return ""
		}
		return "an anchor needs records on the disk: audit.sync must not be none, and audit.file must not be \"-\""
	}},
	half("identity.sign.key", "identity.sign.agent"),
	half("identity.sign.agent", "identity.sign.key"),
	{[]string{"identity.sign.key_next", "identity.sign.key"}, func(c Config) string {
		if c.Identity.Sign.KeyNext == "" || c.Identity.Sign.Key != "" {
			return ""
		}
		return "identity.sign.key is missing"
	}},
	half("tls.ca_cert", "tls.ca_key"),
	half("tls.ca_key", "tls.ca_cert"),
	half("listen_tls.cert", "listen_tls.key"),
	half("listen_tls.key", "listen_tls.cert"),
}

// forClients returns the rule that says who may use a listener for clients.
func forClients(listener string) rule {
	return rule{[]string{listener, "open", "clients"}, func(c Config) string {
		at := c.text(listener)
		if at == "" || c.Open || len(c.Clients) > 0 || loopback(at) {
			return ""
		}
		const why = "%q is not a loopback address, so other machines could use the proxy: add entries to clients, or set open: true"
		return fmt.Sprintf(why, at)
	}}
}

// apart returns the rule that the listeners of two keys have different addresses.
func apart(key, other string) rule {
	return rule{[]string{key, other}, func(c Config) string {
		at := c.text(key)
		if _, port, _ := net.SplitHostPort(at); at == "" || at != c.text(other) || port == "0" {
			return ""
		}
		return fmt.Sprintf("must differ from %s, got %q for both", other, at)
	}}
}

// half returns the rule that key is not given without other.
func half(key, other string) rule {
	return rule{[]string{key, other}, func(c Config) string {
		if c.text(key) == "" || c.text(other) != "" {
			return ""
		}
		return other + " is missing: set both or neither"
	}}
}

// holdsFile returns the rule that the size of all files, if it is bounded by a size, is at least that of one file.
func holdsFile(total, file string, sizes func(Config) (AutoSize, Size)) rule {
	return rule{[]string{total, file}, func(c Config) string {
		all, one := sizes(c)
		if all == 0 || all == Auto || all >= AutoSize(one) {
			return ""
		}
		return fmt.Sprintf("must be 0, auto, or at least %s (%s), got %s", file, textOf(one), textOf(all))
	}}
}

// text returns the value of a key that holds text.
func (c Config) text(path string) string {
	all := leaves(reflect.ValueOf(c), "")
	return all[slices.IndexFunc(all, func(k key) bool { return k.path == path })].value.String()
}

// loopback reports whether only this machine can connect to address. An address without a host is on every interface.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
