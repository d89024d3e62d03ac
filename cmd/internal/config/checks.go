package config

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// check is a set of allowed values.
type check struct {
	// Completes "must be …" and is shown unchanged in the reference.
	allowed string
	holds   func(any) bool

	// For the schema: of a number; nil: the value is no number.
	number *bounds
}

// checks holds each check under the name in the check tag of a field.
var checks = map[string]check{
	"positive":     {"more than 0s", func(v any) bool { return v.(time.Duration) > 0 }, nil},
	"not-negative": {"at least 0s", func(v any) bool { return v.(time.Duration) >= 0 }, nil},
	"anchor":       {"at least " + writeDuration(minAnchor), func(v any) bool { return v.(time.Duration) >= minAnchor }, nil},
	"retry": {"more than 0s and at most " + writeDuration(maxRetry), func(v any) bool {
		return v.(time.Duration) > 0 && v.(time.Duration) <= maxRetry
	}, nil},
	"signature": {"between " + writeDuration(minSignature) + " and " + writeDuration(maxSignature), func(v any) bool {
		return v.(time.Duration) >= minSignature && v.(time.Duration) <= maxSignature
	}, nil},
	"rate": {"between " + rates, func(v any) bool { return isRate(v.(float64)) }, &bounds{minRate, maxRate}},
	"rate-or-0": {"0, or between " + rates, func(v any) bool {
		return v.(float64) == 0 || isRate(v.(float64))
	}, &bounds{0, maxRate}},
	"count":      between(1, maxCount),
	"count-or-0": between(0, maxCount),
	"quota":      between(0, maxQuota),
	"replicas":   between(1, maxReplicas),
	"file-size":  {"at least " + writeSize(Size(minFile)), func(v any) bool { return v.(Size) >= minFile }, nil},
	"url": {"between " + writeSize(Size(minURL)) + " and " + writeSize(Size(maxURL)), func(v any) bool {
		return v.(Size) >= minURL && v.(Size) <= maxURL
	}, nil},
	"memory": {"at least " + writeSize(Size(minMemory)), func(v any) bool {
		return v.(AutoSize) == Auto || v.(AutoSize) >= minMemory
	}, nil},
	"folder-size": {"at least " + writeSize(Size(minFolder)), func(v any) bool { return v.(Size) >= minFolder }, nil},
	"some":        {"a list of at least one item", func(v any) bool { return len(v.([]PortRange)) > 0 }, nil},
}

// rates is the range of a rate, without exponents.
var rates = strconv.FormatFloat(minRate, 'f', -1, 64) + " and " + strconv.FormatFloat(maxRate, 'f', -1, 64)

// isRate reports whether x is in range. NaN is not.
func isRate(x float64) bool { return x >= minRate && x <= maxRate }

func between(least, most int) check {
	return check{fmt.Sprintf("between %d and %d", least, most), func(v any) bool {
		return v.(int) >= least && v.(int) <= most
	}, &bounds{float64(least), float64(most)}}
}

const (
	maxRetry = 30 * time.Minute

	// Clocks differ.
	minSignature = 10 * time.Second
	maxSignature = 24 * time.Hour

	minAnchor = time.Hour
	// One request in eleven days; the interval still fits a time.Duration.
	minRate = 1e-6
	// An interval of one nanosecond.
	maxRate  = 1e9
	maxCount = 1 << 20
	maxQuota = 1_000_000_000
	// Bytes; a smaller file holds only a few records.
	minFile = 64 << 10

	// Bytes; the largest robots.txt must fit.
	minFolder = 1 << 20
	// Bytes; the process takes about 20 MiB without any request.
	minMemory = 64 << 20

	maxReplicas = 10_000

	// Bytes.
	minURL, maxURL = 1 << 10, 64 << 10
)

// rule is a constraint between keys. It is not checked if one of the keys is invalid by itself.
type rule struct {
	// The error names the first, at the line of the first that the file has.
	keys   []string
	broken func(Config) string
}

var rules = []rule{
	forClients("listen", func(c Config) string { return c.Listen }),
	forClients("listen_transparent", func(c Config) string { return c.ListenTransparent }),
	{[]string{"listen_transparent"}, func(c Config) string {
		if c.ListenTransparent == "" || runtime.GOOS == "linux" {
			return ""
		}
		return "redirected connections need Linux"
	}},
	apart("admin.listen", "listen", func(c Config) (string, string) { return c.Admin.Listen, c.Listen }),
	apart("admin.metrics_listen", "listen", func(c Config) (string, string) { return c.Admin.MetricsListen, c.Listen }),
	apart("admin.metrics_listen", "admin.listen", func(c Config) (string, string) { return c.Admin.MetricsListen, c.Admin.Listen }),
	{[]string{"admin.metrics_listen"}, func(c Config) string {
		if !strings.HasPrefix(c.Admin.MetricsListen, ":") {
			return ""
		}
		return fmt.Sprintf("%q names no host, so every machine could read the metrics: use 127.0.0.1%[1]s, or 0.0.0.0%[1]s if that is intended", c.Admin.MetricsListen)
	}},
	{[]string{"admin.listen", "admin.token"}, func(c Config) string {
		if c.Admin.Listen == "" || loopback(c.Admin.Listen) || c.Admin.Token != "" {
			return ""
		}
		return fmt.Sprintf("%q is not a loopback address, so other machines could control the proxy: set admin.token", c.Admin.Listen)
	}},
	{[]string{"robots.min_age", "robots.max_age"}, func(c Config) string {
		if c.Robots.MinAge <= c.Robots.MaxAge {
			return ""
		}
		return fmt.Sprintf("must be at most robots.max_age (%s), got %s", writeDuration(c.Robots.MaxAge), writeDuration(c.Robots.MinAge))
	}},
	{[]string{"usage.on_unknown", "usage.on_disallowed"}, func(c Config) string {
		if c.Usage.OnUnknown == "allow" || c.Usage.OnDisallowed == "refuse" {
			return ""
		}
		return "refuse needs usage.on_disallowed: refuse"
	}},
	{[]string{"audit.max_total_size", "audit.max_size"}, func(c Config) string {
		// 0 or Auto.
		if total := c.Audit.MaxTotalSize; total <= 0 || total >= AutoSize(c.Audit.MaxSize) {
			return ""
		}
		return fmt.Sprintf("must be 0, auto, or at least audit.max_size (%s), got %s", writeSize(c.Audit.MaxSize), writeAutoSize(c.Audit.MaxTotalSize))
	}},
	{[]string{"archive.max_total_size", "archive.max_file"}, func(c Config) string {
		// 0 or Auto.
		if total := c.Archive.MaxTotalSize; total <= 0 || total >= AutoSize(c.Archive.MaxFile) {
			return ""
		}
		return fmt.Sprintf("must be 0, auto, or at least archive.max_file (%s), got %s", writeSize(c.Archive.MaxFile), writeAutoSize(c.Archive.MaxTotalSize))
	}},
	{[]string{"store.replicas", "store.redis"}, func(c Config) string {
		if c.Store.Replicas == 1 || c.Store.Redis != "" {
			return ""
		}
		return fmt.Sprintf("%d replicas need a shared store: set store.redis", c.Store.Replicas)
	}},
	{[]string{"hosts"}, func(c Config) string {
		for i, host := range c.Hosts {
			// For Check: Parse reports it with its line.
			if keys, why := host.invalid(); why != "" {
				return fmt.Sprintf("entry %d: %s: %s", i+1, keys[0], why)
			}
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
			// For Check: Parse reports it with its line.
			if keys, why := client.invalid(); why != "" {
				return fmt.Sprintf("entry %d: %s: %s", i+1, keys[0], why)
			}
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
	half("identity.sign.key", "identity.sign.agent", func(c Config) (string, string) { return c.Identity.Sign.Key, c.Identity.Sign.Agent }),
	half("identity.sign.agent", "identity.sign.key", func(c Config) (string, string) { return c.Identity.Sign.Agent, c.Identity.Sign.Key }),
	{[]string{"identity.sign.key_next", "identity.sign.key"}, func(c Config) string {
		if c.Identity.Sign.KeyNext == "" || c.Identity.Sign.Key != "" {
			return ""
		}
		return "identity.sign.key is missing"
	}},
	half("tls.ca_cert", "tls.ca_key", func(c Config) (string, string) { return c.TLS.CACert, c.TLS.CAKey }),
	half("tls.ca_key", "tls.ca_cert", func(c Config) (string, string) { return c.TLS.CAKey, c.TLS.CACert }),
	half("listen_tls.cert", "listen_tls.key", func(c Config) (string, string) { return c.ListenTLS.Cert, c.ListenTLS.Key }),
	half("listen_tls.key", "listen_tls.cert", func(c Config) (string, string) { return c.ListenTLS.Key, c.ListenTLS.Cert }),
}

// forClients returns the rule that says who may use a listener for clients.
func forClients(key string, address func(Config) string) rule {
	return rule{[]string{key, "open", "clients"}, func(c Config) string {
		if at := address(c); at != "" && !c.Open && len(c.Clients) == 0 && !loopback(at) {
			return fmt.Sprintf("%q is not a loopback address, so other machines could use the proxy: add entries to clients, or set open: true", at)
		}
		return ""
	}}
}

// apart returns the rule that the listeners of two keys have different addresses.
func apart(key, other string, addresses func(Config) (string, string)) rule {
	return rule{[]string{key, other}, func(c Config) string {
		at, otherAt := addresses(c)
		if _, port, _ := net.SplitHostPort(at); at == "" || at != otherAt || port == "0" {
			return ""
		}
		return fmt.Sprintf("must differ from %s, got %q for both", other, at)
	}}
}

// half returns the rule that key is not given without other.
func half(key, other string, values func(Config) (string, string)) rule {
	return rule{[]string{key, other}, func(c Config) string {
		if given, needed := values(c); given != "" && needed == "" {
			return other + " is missing: set both or neither"
		}
		return ""
	}}
}

// loopback reports whether only this machine can connect to address. An address without
// a host is on every interface.
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
