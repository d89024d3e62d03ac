// Package redis stores what the replicas of a fleet share in a Redis or Valkey server, with go-redis: the
// slots of each host (it is a pace.Store), and robots.txt files.
//
// One script reserves a slot (scripts/reserve.lua). It reads the host's back-off and its limiters, takes a
// concurrency slot, and checks that the server is still the same. Its times are the server's, so the
// replicas' clocks need not agree. The back-off and the limiters of a host are one key, which expires when
// they can delay no request. The leases of the concurrency slots are another key, and the limiter of one
// client is a third.
//
// How it fails: as soon as a call fails or takes longer than a second, this replica is alone. It then uses
// its share of the rate, which is the rate divided by Options.Replicas. When the server answers again, the
// replica keeps to this share until a probe has succeeded and, for a second, it has pushed the requests
// that it sent meanwhile. The package recognises a server that was emptied or replaced by an epoch that is
// stored in the server, and by the ID of the server's run. Such a server counts as one that was
// unavailable. The other replicas cannot see a replica that is alone: each of them uses 1/Replicas of the
// rate times the number of replicas that it can see. Therefore, however the fleet is split, its parts
// together keep the rate. A replica that shuts down normally leaves its share to the others for ten
// minutes, for its successor, unless the successor has already joined. If the successor cannot reach the
// server, it uses a share of its own in addition, until the ten minutes are over.
//
// The connection fails if a reply is longer than what was asked for (bound.go). A key of another type
// than the proxy's is deleted (wrongtype.go).
//
// If the server's clock is set forward, it counts time that has not passed: each host may once get a
// request too early. A clock that is set back is noticed. Redis Cluster is not supported. If a server is
// replaced by its replica without Sentinel and the old one still answers some replicas, the two servers do
// not know of each other: use a separate address for each.
//
// A robots.txt or tdmrep.json is one key for each agent, with an entry of robots/cache. The lease that permits a replica
// to fetch the file is another key, which expires by itself ([Fleet.Robots], [Fleet.TDMRep]). Each replica also has a local
// store, which it uses while it is alone. It does not publish what it fetches in that time: the others
// fetch the file again when they need it. A purge is sent when the server is available. For 31 days it
// replaces the file's entry, and a save that may be based on the purged file is rejected. A stream for
// each of the two kinds of files lists the purges. A replica that was disconnected continues to read the
// streams where it stopped. If it has missed more than ten thousand entries, or entries that were lost
// when the server was emptied, it uses its files until they expire. A replica that starts reads the whole
// stream: it discards purged files of its local store, and loads them from the server or fetches them
// again.
//
// Another stream has the newest checkpoints of the audits of all replicas, so that each records those of the others
// ([Fleet.ShareCheckpoint], [Fleet.Checkpoints]).
//
// What was used of the quota of a client, or of the budget of a host, is one hash of buckets of time, which end by the server's clock
// ([Fleet.Take]). Hooks.Tell sends later what was used while the server was unavailable. A server that was emptied has forgotten
// what was used.
//
// The stops of package policy/stops are a hash, with the numbers of their changes in a sorted set, of which each replica reads what is
// new every second. The server decides which of two changes of one stop is the later one ([Hooks].Stops).
//
// Any number of goroutines may share a Fleet. Open starts nothing.
package redis
