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

	"robotsproxy/policy/labels"
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
	"checkpoint":   atLeast(minCheckpoint),
	"retry":        {allowed: "more than 0s and at most " + textOf(maxRetry), bounds: bounds{1, float64(maxRetry)}},
	"signature":    between(minSignature, maxSignature),
	"rate":         {allowed: "between " + rates, bounds: bounds{minRate, maxRate}},
	"rate-or-0":    {allowed: "0, or between " + rates, bounds: bounds{minRate, maxRate}, also: new(float64)},
	"count":        between(1, maxCount),
	"row":          between(0, maxRow),
	"pause":        between(time.Second, maxPause),
	"count-or-0":   between(0, maxCount),
	"quota":        between(0, maxQuota),
	"budget-period": {allowed: "0s, or between " + textOf(minPeriod) + " and " + textOf(maxPeriod),
		bounds: bounds{float64(minPeriod), float64(maxPeriod)}, also: new(float64)},
	"replicas":    between(1, maxReplicas),
	"url":         between(minURL, maxURL),
	"file-size":   atLeast(minFile),
	"folder-size": atLeast(minFolder),
	"memory":      {allowed: "at least " + textOf(minMemory), bounds: bounds{float64(minMemory), math.Inf(1)}, also: new(float64(Auto))},
	"labels":      {allowed: fmt.Sprintf("a list of at most %d items", labels.Max), bounds: bounds{0, labels.Max}},
	"some":        {allowed: "a list of at least one item", bounds: bounds{1, math.Inf(1)}},
}

const (
	maxRetry = 30 * time.Minute

	// A shorter time of validity would not do, since the clocks of two machines differ.
	minSignature = 10 * time.Second
	maxSignature = 24 * time.Hour

	minCheckpoint = time.Minute

	maxPause = 24 * time.Hour

	// minRate is one request in eleven days; the interval still fits a time.Duration. maxRate is an interval of one nanosecond.
	minRate, maxRate = 1e-6, 1e9

	maxCount    = 1 << 20
	maxRow      = 100
	maxQuota    = 1_000_000_000
	maxReplicas = 10_000

	minPeriod = time.Minute
	maxPeriod = 31 * 24 * time.Hour

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

// rule is a constraint between keys. It does not count if one of the keys is invalid by itself.
type rule struct {
	// why says what is wrong, "" if the rule holds.
	why string

	// The error names the first key, at the line of the first of the keys that the file has.
	keys []string
}

// rules returns all rules with what c does about them.
func rules(c Config) []rule {
	sign := c.Identity.Sign
	return []rule{
		c.forClients(c.Listen, "listen"),
		c.forClients(c.ListenTransparent, "listen_transparent"),
		when(c.ListenTransparent != "" && runtime.GOOS != "linux", "redirected connections need Linux", "listen_transparent"),
		apart(c.Admin.Listen, c.Listen, "admin.listen", "listen"),
		apart(c.Admin.MetricsListen, c.Listen, "admin.metrics_listen", "listen"),
		apart(c.Admin.MetricsListen, c.Admin.Listen, "admin.metrics_listen", "admin.listen"),
		when(strings.HasPrefix(c.Admin.MetricsListen, ":"), fmt.Sprintf("%q names no host, so every machine could read the metrics: "+
			"use 127.0.0.1%[1]s, or 0.0.0.0%[1]s if that is intended", c.Admin.MetricsListen), "admin.metrics_listen"),
		when(c.Admin.Listen != "" && !loopback(c.Admin.Listen) && c.Admin.Token == "",
			fmt.Sprintf("%q is not a loopback address, so other machines could control the proxy: set admin.token", c.Admin.Listen),
			"admin.listen", "admin.token"),
		when(c.Robots.MinAge > c.Robots.MaxAge,
			fmt.Sprintf("must be at most robots.max_age (%s), got %s", textOf(c.Robots.MaxAge), textOf(c.Robots.MinAge)),
			"robots.min_age", "robots.max_age"),
		when(c.Usage.OnUnknown != "allow" && c.Usage.OnDisallowed != "refuse", "refuse needs usage.on_disallowed: refuse",
			"usage.on_unknown", "usage.on_disallowed"),
		holdsFile(c.Audit.MaxTotalSize, c.Audit.MaxSize, "audit.max_total_size", "audit.max_size"),
		holdsFile(c.Archive.MaxTotalSize, c.Archive.MaxFile, "archive.max_total_size", "archive.max_file"),
		when(c.Store.Replicas != 1 && c.Store.Redis == "",
			fmt.Sprintf("%d replicas need a shared store: set store.redis", c.Store.Replicas), "store.replicas", "store.redis"),
		{unreached(c.Hosts), []string{"hosts"}},
		{sameName(c.Clients), []string{"clients"}},
		when(c.Audit.Checkpoint.File+c.Audit.Anchor.File+c.Audit.Anchor.TSA != "" && c.Audit.File == "-",
			`checkpoints need an audit in a file: audit.file must not be "-"`,
			"audit.checkpoint.file", "audit.anchor.file", "audit.anchor.tsa", "audit.file"),
		half(sign.Key, sign.Agent, "identity.sign.key", "identity.sign.agent"),
		half(sign.Agent, sign.Key, "identity.sign.agent", "identity.sign.key"),
		when(sign.KeyNext != "" && sign.Key == "", "identity.sign.key is missing", "identity.sign.key_next", "identity.sign.key"),
		half(c.TLS.CACert, c.TLS.CAKey, "tls.ca_cert", "tls.ca_key"),
		half(c.TLS.CAKey, c.TLS.CACert, "tls.ca_key", "tls.ca_cert"),
		half(c.ListenTLS.Cert, c.ListenTLS.Key, "listen_tls.cert", "listen_tls.key"),
		half(c.ListenTLS.Key, c.ListenTLS.Cert, "listen_tls.key", "listen_tls.cert"),
	}
}

// brokenRules returns the rules that do not hold and whose keys are not among the bad ones.
func (c Config) brokenRules(bad map[string]bool) []rule {
	return slices.DeleteFunc(rules(c), func(r rule) bool {
		return r.why == "" || slices.ContainsFunc(r.keys, func(k string) bool { return bad[k] })
	})
}

// when returns the rule that broken is not the case.
func when(broken bool, why string, keys ...string) rule {
	if !broken {
		why = ""
	}
	return rule{why, keys}
}

// forClients returns the rule that says who may use a listener for clients.
func (c Config) forClients(address, key string) rule {
	const why = "%q is not a loopback address, so other machines could use the proxy: add entries to clients, or set open: true"
	open := address != "" && !c.Open && len(c.Clients) == 0 && !loopback(address)
	return when(open, fmt.Sprintf(why, address), key, "open", "clients")
}

// apart returns the rule that the listeners of two keys have different addresses.
func apart(address, other, key, otherKey string) rule {
	_, port, _ := net.SplitHostPort(address)
	same := address != "" && address == other && port != "0"
	return when(same, fmt.Sprintf("must differ from %s, got %q for both", otherKey, other), key, otherKey)
}

// half returns the rule that a key is not given without another.
func half(given, needed, key, neededKey string) rule {
	return when(given != "" && needed == "", neededKey+" is missing: set both or neither", key, neededKey)
}

// holdsFile returns the rule that the size of all files, if it is bounded by a size, is at least that of one file.
func holdsFile(all AutoSize, one Size, allKey, oneKey string) rule {
	why := fmt.Sprintf("must be 0, auto, or at least %s (%s), got %s", oneKey, textOf(one), textOf(all))
	return when(all > 0 && all < AutoSize(one), why, allKey, oneKey)
}

// unreached returns which entry of hosts never applies, "" if each may.
func unreached(hosts []Host) string {
	for i, host := range hosts {
		before := slices.IndexFunc(hosts[:i], func(b Host) bool {
			return b.Until.IsZero() && len(b.Paths) == 0 && (b.Match == "*" || strings.EqualFold(b.Match, host.Match))
		})
		if before >= 0 {
			return fmt.Sprintf("entry %d never applies: entry %d before it matches the same hosts", i+1, before+1)
		}
	}
	return ""
}

// sameName returns which entries of clients have the same name, "" if there are none.
func sameName(clients []Client) string {
	first := map[string]int{}
	for i, client := range clients {
		if at, twice := first[client.Name]; twice {
			return fmt.Sprintf("entries %d and %d have the same name: %q", at+1, i+1, client.Name)
		}
		first[client.Name] = i
	}
	return ""
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
