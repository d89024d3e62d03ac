package config

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// redisParameters are what may stand behind the "?" of store.redis. The others that
// its driver knows are for the proxy to choose, or would have it trust any certificate.
var redisParameters = []string{"db", "master_name", "addr", "username", "password"}

// ofSentinels are those of them that only Sentinels are asked with.
var ofSentinels = []string{"addr", "username", "password"}

func isRedis(s string) bool { return notRedis(s) == "" }

// notRedis says what keeps s from being the URL of a server. It repeats nothing of it.
func notRedis(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "is not a URL (example: redis://:password@redis.example:6379/0; in a password %40 stands for @, %2F for / and so on)"
	}
	if _, has := u.User.Password(); u.User != nil && !has {
		return "has a user, but no password (a password alone stands behind a colon: redis://:password@redis.example)"
	}
	switch u.Scheme {
	case "unix":
		if u.Host != "" || len(u.Path) < 2 {
			return "names no socket (example: unix:///run/redis/redis.sock)"
		}
	case "redis", "rediss":
		if why := notServer(u); why != "" {
			return why
		}
	default:
		return "begins with none of redis://, rediss:// and unix://"
	}
	return notAsked(u)
}

// notServer says what keeps u from naming a server, and maybe a database of it.
func notServer(u *url.URL) string {
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "6379"), 10, 16)
	switch {
	case !isHost(u.Hostname()):
		return "names no host"
	case err != nil || port == 0:
		return "has a port that is none"
	case strings.Trim(u.Path, "/") != "" && !isDatabase(strings.Trim(u.Path, "/")):
		return "has more behind the host than the number of a database"
	}
	return ""
}

// maxDatabase is far above what servers are set up with.
const maxDatabase = 1 << 20

func isDatabase(s string) bool {
	n, err := strconv.ParseUint(s, 10, 32)
	return err == nil && n <= maxDatabase
}

// notAsked says what is wrong with u's parameters.
func notAsked(u *url.URL) string {
	asked, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Fragment != "" {
		return "cannot be read behind the ?"
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		switch values := asked[name]; {
		case !slices.Contains(redisParameters, name):
			return "has something behind the ? that is none of " + strings.Join(redisParameters, ", ")
		case slices.Contains(ofSentinels, name) && !asked.Has("master_name"):
			return "has " + name + " behind the ?, which is for Sentinels: master_name is missing"
		case len(values) > 1 && name != "addr":
			return "has " + name + " behind the ? more than once"
		case slices.Contains(values, ""):
			return "has an empty " + name + " behind the ?"
		case name == "db" && !isDatabase(values[0]):
			return "has a db behind the ? that is not the number of a database"
		case name == "addr" && slices.ContainsFunc(values, func(a string) bool { return !isServer(a) }):
			return "has an addr behind the ? that is not the host:port of a Sentinel"
		}
	}
	if u.Scheme == "unix" && asked.Has("master_name") {
		return "has a master_name behind the ?, and Sentinels are not asked through a socket"
	}
	return ""
}

// redactedRedis is the URL without its passwords, and still one that can be loaded.
func redactedRedis(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "" // none that was read
	}
	if asked := u.Query(); asked.Has("password") {
		asked.Set("password", "xxxxx") // as url.URL has it
		u.RawQuery = asked.Encode()
	}
	if _, has := u.User.Password(); has {
		return u.Redacted()
	}
	return u.String()
}

// maxReplica is how long the name of a replica may be: it stands in each record.
const maxReplica = 64

func isReplica(s string) bool {
	return s != "" && len(s) <= maxReplica && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
