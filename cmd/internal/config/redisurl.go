package config

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// redisParameters are the query parameters that store.redis may have. The proxy chooses the others that the driver knows; one
// of them would make it trust any certificate.
var redisParameters = []string{"db", "master_name", "addr", "username", "password"}

// sentinelParameters are the query parameters for Sentinels. They need master_name.
var sentinelParameters = []string{"addr", "username", "password"}

func isRedis(s string) bool { return notRedis(s) == "" }

// notRedis returns why s is not the URL of a Redis server, "" if it is one. The text repeats nothing of s, which may hold a
// password.
func notRedis(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "is not a URL (example: redis://:password@redis.example:6379/0; write %40 for @ and %2F for / in a password)"
	}
	if _, has := u.User.Password(); u.User != nil && !has {
		return "has a user name but no password (a password without a user name follows a colon: redis://:password@redis.example)"
	}
	switch u.Scheme {
	case "unix":
		if u.Host != "" || len(u.Path) < 2 {
			return "has no path of a socket (example: unix:///run/redis/redis.sock)"
		}
	case "redis", "rediss":
		if why := notServer(u); why != "" {
			return why
		}
	default:
		return "must begin with redis://, rediss:// or unix://"
	}
	return notParameters(u)
}

// notServer returns why u does not name a server, with or without a database; "" if it does.
func notServer(u *url.URL) string {
	database := strings.Trim(u.Path, "/")
	switch {
	case !isHost(u.Hostname()):
		return "has no host"
	case u.Port() != "" && !isPort(u.Port()):
		return "has an invalid port"
	case database != "" && !isDatabase(database):
		return "must end after the host and the database number"
	}
	return ""
}

// maxDatabase bounds the number of a database. Servers have far fewer.
const maxDatabase = 1 << 20

func isDatabase(s string) bool {
	n, err := strconv.ParseUint(s, 10, 32)
	return err == nil && n <= maxDatabase
}

// notParameters returns what is wrong with the query parameters of u, "" for nothing.
func notParameters(u *url.URL) string {
	asked, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Fragment != "" {
		return "has malformed parameters after the ?"
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		switch values := asked[name]; {
		case !slices.Contains(redisParameters, name):
			return "has an unknown parameter after the ?: use " + strings.Join(redisParameters, ", ")
		case slices.Contains(sentinelParameters, name) && !asked.Has("master_name"):
			return "has the parameter " + name + ", which is for Sentinel, but no master_name"
		case len(values) > 1 && name != "addr":
			return "has the parameter " + name + " more than once"
		case slices.Contains(values, ""):
			return "has an empty parameter " + name
		case name == "db" && !isDatabase(values[0]):
			return "has a parameter db that is not a database number"
		case name == "addr" && slices.ContainsFunc(values, func(a string) bool { return !isServer(a) }):
			return "has a parameter addr that is not the host:port of a Sentinel"
		}
	}
	if u.Scheme == "unix" && asked.Has("master_name") {
		return "has the parameter master_name, which is not possible with unix://"
	}
	return ""
}
