package config

import (
	"net/netip"
	"reflect"
	"time"

	"robotsproxy/policy/labels"
)

// An entry of a list validates itself as a whole. It returns the keys that are part of the mistake; the error names the first
// of them, and is left out if one of them has a problem of its own.
type entry interface {
	invalid() (keys []string, why string)
}

// Host is what is different for the hosts that fit a pattern.
type Host struct {
	// The hosts that the entry is for: a host name or address, *. and a domain for all hosts below it, or *
	// for every host.
	Match string `key:"match" default:"" required:"yes" example:"\"*.example.org\"" kind:"pattern-or-none"`

	// The paths of these hosts that the entry is for, with their queries: patterns as in the rules of a
	// robots.txt, each beginning with /. An empty list means every path. Only entries without paths apply to
	// /robots.txt, to CONNECT and to tunnels that are passed through.
	Paths []string `key:"paths" default:"[]" example:"[/data/, /api/export$]" kind:"robots-pattern"`

	// enforce applies robots.txt. ignore does not fetch it and allows every path. deny refuses every request.
	Robots string `key:"robots" default:"enforce" oneof:"enforce ignore deny"`

	// What status 401 or 403 for robots.txt means: allow or refuse. An empty value means the value of
	// robots.forbidden.
	Forbidden string `key:"forbidden" default:"" oneof:"allow refuse"`

	// Which forms of a path are judged: all or literal. An empty value means the value of robots.readings.
	Readings string `key:"readings" default:"" oneof:"all literal"`

	// enforce applies usage.on_disallowed and usage.on_unknown. ignore only records what the site says about
	// purposes.
	Usage string `key:"usage" default:"enforce" oneof:"enforce ignore"`

	// The URL of the upstream proxy that requests to these hosts go through, in place of egress.parent: http://,
	// https:// or socks5://, with user:password@ if it needs a login. direct means none. An empty value means
	// the value of egress.parent.
	Parent string `key:"parent" default:"" kind:"host-parent"`

	// Who permitted the exception, or why it is made. It is written to the audit and to refusals. ignore and
	// deny require it. An empty value means no reason.
	Reason string `key:"reason" default:"" kind:"line"`

	// When the entry expires: the last day, in UTC, or a time. After that the entry does not apply. An empty
	// value means never.
	Until time.Time `key:"until" default:""`

	// When requests may be sent to these hosts. Each item has days, times or both, and perhaps a time zone, such as
	// "22:00-05:00" or "Sat-Sun Europe/Berlin". Without a zone, the times are UTC. robots stands for the Visit-time
	// lines of robots.txt, if there are any; beside other items, both must permit a request. Outside the hours, a
	// request waits if they begin within pace.max_wait; otherwise it gets 429. An empty list means always.
	Hours []string `key:"hours" default:"[]" example:"[\"22:00-05:00 Europe/Berlin\", Sat-Sun]" kind:"hours"`

	// When the proxy stops a client for a time at one of these hosts, because the host refuses its requests. off
	// means never.
	CoolDown CoolDown `key:"cool_down" off:"after"`

	// The pace of each of these hosts.
	Pace HostPace `key:"pace"`

	// What all clients together may send to each of these hosts in a period.
	Budget HostBudget `key:"budget"`
}

func (h Host) invalid() (keys []string, why string) {
	switch {
	case h.Match == "":
		return []string{"match"}, "required"
	case h.Robots != "enforce" && h.Reason == "":
		return []string{"reason", "robots"}, "required with robots: " + h.Robots
	case h.Usage != "enforce" && h.Reason == "":
		return []string{"reason", "usage"}, "required with usage: " + h.Usage
	case h.Budget.Per == 0 && (h.Budget.Requests > 0 || h.Budget.Bytes > 0):
		return []string{"budget.per", "budget.requests", "budget.bytes"}, "required with budget.requests or budget.bytes"
	}
	return nil, ""
}

// CoolDown is when a client is stopped at a host that refuses its requests.
type CoolDown struct {
	// How many responses with one of the statuses a client must get in a row before it is stopped at the host. A
	// response 2xx or 3xx ends the row. When two clients are stopped, all are. 0 means never.
	After int `key:"after" default:"20" check:"row" unit:"responses"`

	// The longest time from the first to the last response of the row.
	Within time.Duration `key:"within" default:"10m" check:"positive"`

	// The statuses by which a host refuses.
	Statuses []Status `key:"statuses" default:"[401, 403, 429, 503]" check:"some"`

	// How long the client is stopped. Then the proxy sends one request: if the host refuses it too, the next stop
	// is twice as long, up to a day.
	Pause time.Duration `key:"pause" default:"10m" check:"pause"`
}

// DefaultCoolDown returns the CoolDown of hosts that no entry matches.
func DefaultCoolDown() (c CoolDown) {
	setDefaults(reflect.ValueOf(&c).Elem())
	return c
}

// HostPace is what of Pace is different for a host.
type HostPace struct {
	// The maximum request rate, in requests per second. A Crawl-delay can only make it slower. 0 means the
	// value of pace.
	RequestsPerSecond float64 `key:"requests_per_second" default:"0" check:"rate-or-0" unit:"requests per second"`

	// How many requests may go at once after a quiet time. 0 means the value of pace.
	Burst int `key:"burst" default:"0" check:"count-or-0" unit:"requests"`

	// The maximum number of requests in flight. 0 means the value of pace.
	MaxConcurrent int `key:"max_concurrent" default:"0" check:"count-or-0" unit:"requests"`

	// The maximum time that a request waits in the queue. 0s means the value of pace.
	MaxWait time.Duration `key:"max_wait" default:"0s" check:"not-negative"`

	// The maximum number of requests that wait. 0 means the value of pace.
	MaxQueue int `key:"max_queue" default:"0" check:"count-or-0" unit:"requests"`
}

// HostBudget is what all clients together may send to a host, or to the paths of its entry, in any period of one length.
type HostBudget struct {
	// The maximum number of requests in any period of length per. The proxy's own fetches of robots.txt and
	// tdmrep.json count too, but are always sent. The proxy answers 429 to further requests. 0 means no limit.
	Requests int `key:"requests" default:"0" check:"quota" unit:"requests" example:"5000"`

	// The maximum size of what requests receive in any period of length per, without the heads. A response or a
	// tunnel counts when it ends. The proxy answers 429 to further requests. 0 means no limit.
	Bytes Size `key:"bytes" default:"0" example:"2GiB"`

	// The length of the period, up to 31 days. A request counts for up to a twelfth longer. It is required with requests
	// or bytes. 0s means that there is no budget.
	Per time.Duration `key:"per" default:"0s" check:"budget-period" example:"24h"`
}

// Client is one that is known by where it asks from, by a password, or by both.
type Client struct {
	// The client's name, in the audit and for the login.
	Name string `key:"name" default:"" required:"yes" example:"lab-a" kind:"name"`

	// The bcrypt hash of the client's password, as robotsproxy password prints it. An entry with a password
	// and networks matches only a client with both. An empty value means no login: networks alone identify
	// the client.
	PasswordHash string `key:"password_hash" default:"" kind:"bcrypt"`

	// The bcrypt hash of a second password that is accepted too, while the client's password is changed. An
	// empty value means that there is none.
	PasswordHashNext string `key:"password_hash_next" default:"" kind:"bcrypt"`

	// The networks that the client connects from. An empty list means any address: the password alone
	// identifies the client.
	Networks []netip.Prefix `key:"networks" default:"[]" example:"[192.0.2.0/24]"`

	// How robots.txt files are interpreted for this client.
	Robots ClientRobots `key:"robots"`

	// What this client fetches content for.
	Usage ClientUsage `key:"usage"`

	// What this client's requests are for, each KEY=VALUE, at most 8: their records have these labels. An empty
	// list means none.
	Labels []string `key:"labels" default:"[]" example:"[job=news, team=a]" kind:"label" check:"labels"`

	// How this client identifies itself to sites.
	Identity ClientIdentity `key:"identity"`

	// How fast this client's requests go to each host.
	Pace ClientPace `key:"pace"`

	// How many requests this client may make.
	Quota Quota `key:"quota"`
}

func (c Client) invalid() (keys []string, why string) {
	sign := c.Identity.Sign
	switch _, err := labels.Parse(c.Labels...); {
	case c.Name == "":
		return []string{"name"}, "required"
	case err != nil:
		return []string{"labels"}, err.Error()
	case len(c.Networks) == 0 && c.PasswordHash == "":
		return []string{"networks", "password_hash"}, "required unless password_hash is set: otherwise every client matches the entry"
	case c.PasswordHash == "" && c.PasswordHashNext != "":
		return []string{"password_hash", "password_hash_next"}, "required with password_hash_next"
	case sign.Key != "" && sign.Agent == "":
		return []string{"identity.sign.agent", "identity.sign.key"}, "required with identity.sign.key"
	case sign.Key == "" && (sign.Agent != "" || sign.KeyNext != ""):
		return []string{"identity.sign.key", "identity.sign.agent", "identity.sign.key_next"},
			"required with identity.sign.agent or identity.sign.key_next"
	}
	return nil, ""
}

// ClientRobots is how robots.txt is read for one client.
type ClientRobots struct {
	// The interpretation of robots.txt for this client. An empty value means the value of robots.dialect.
	Dialect string `key:"dialect" default:"" kind:"dialect"`
}

// ClientUsage is what one client fetches content for.
type ClientUsage struct {
	// The purposes of this client: train-ai, ai-input, search, tdm. An empty list means the value of
	// usage.purposes.
	Purposes []string `key:"purposes" default:"[]" kind:"purpose" example:"[search]"`
}

// ClientIdentity is who one client is.
type ClientIdentity struct {
	// The product token by which this client is judged. An empty value means the value of
	// identity.product_token.
	ProductToken string `key:"product_token" default:"" kind:"token"`

	// The key that signs this client's requests.
	Sign ClientSign `key:"sign"`
}

// ClientSign is what of Sign is different for one client.
type ClientSign struct {
	// The file of the private key that signs this client's requests. Give key and agent, or neither. An empty
	// value means the value of identity.sign.key.
	Key string `key:"key" default:"" kind:"path"`

	// The file of the key that will sign after the next rotation. An empty value means none.
	KeyNext string `key:"key_next" default:"" kind:"path"`

	// The https:// URL at which you publish the key directory of this client. An empty value means the value
	// of identity.sign.agent.
	Agent string `key:"agent" default:"" kind:"directory"`
}

// ClientPace is what of Pace is different for one client.
type ClientPace struct {
	// The maximum rate of this client's requests to one host, in requests per second. It cannot be faster
	// than an entry of hosts allows. 0 means the rate of other clients.
	RequestsPerSecond float64 `key:"requests_per_second" default:"0" check:"rate-or-0" unit:"requests per second"`

	// How many of this client's requests may go to a host at once after a quiet time. 0 means the burst of
	// other clients.
	Burst int `key:"burst" default:"0" check:"count-or-0" unit:"requests"`

	// How many parts of a page (images, styles, scripts) this client's browser may load at once. 0 means that
	// parts of a page are paced like pages.
	AssetBurst int `key:"asset_burst" default:"0" check:"count-or-0" unit:"requests"`
}

// Quota limits what a client uses.
type Quota struct {
	// The maximum number of this client's requests in one day of UTC. The proxy answers 429 to further ones.
	// 0 means no limit.
	RequestsPerDay int `key:"requests_per_day" default:"0" check:"quota" unit:"requests"`

	// The maximum size of what this client's requests receive in one day of UTC, without the heads. What passes
	// through tunnels counts when they end. The proxy answers 429 to requests after that. 0 means no limit.
	BytesPerDay Size `key:"bytes_per_day" default:"0"`
}
