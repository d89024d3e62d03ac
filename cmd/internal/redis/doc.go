// Package redis keeps what the replicas of a fleet share in a Redis or Valkey server, by way
// of go-redis: the slots of each host (it is a pace.Store), and what is known of robots.txt
// files.
//
// One script reserves a slot (scripts/reserve.lua): it reads the host's back-off and its
// limiters, takes a concurrency slot, and checks that the server is still the one that it
// was. Its times are the server's, so that the replicas' clocks need not agree. A host's
// back-off and limiters are one key, which expires when they can hold up no request. The
// leases of the concurrency slots are another key, and the limiter of one client a third.
//
// How it fails: as soon as a call fails or takes longer than a second, this replica is
// alone, and goes by its share of the rate, a replicas-th. While it returns, it still goes
// by its share: until a probe has succeeded and, for a second, it has pushed which requests
// it sent meanwhile. The package notices a server that was emptied, or that is another one
// than before, by the epoch that is kept in it and by its own run ID; such a server counts
// as one that was away. The other replicas cannot see one that is alone: each of them has
// 1/replicas of the rate times the number of the replicas that it can see. So however the
// fleet is cut apart, its parts together keep the rate. A replica that ended in order leaves
// its share to the others for ten minutes, for its successor, unless that is there already.
// If the successor cannot reach the server, it has a share of its own besides, until the
// ten minutes have passed.
//
// A server whose clock is set forward counts time that has not passed: once, a host may be
// sent a request too early. One that is set back is noticed. Redis Cluster is not
// supported. Where a server is replaced by its replica without Sentinel and the old one
// still answers some, these two do not know of each other: give it an address of its own.
//
// A robots.txt file is one key with an entry of robots/cache, and the right to fetch the file is another
// key, which expires by itself ([Fleet.Robots]). Each replica has a local store as well, which it uses
// while it is alone. It does not publish what it fetches in that time: the others fetch the file again
// when they need it. A purge is sent when the server is back. For 31 days it replaces the file's entry, and
// a save that may rest on what was purged is rejected. A stream lists the purges; a replica that was cut
// off goes on reading it where it stopped. One that has missed more than ten thousand entries, or entries
// that were lost when the server was emptied, uses its files until they expire. A replica that starts
// reads the whole stream: it discards files of its local store that were purged, and loads them from the
// server or fetches them again.
//
// Any number of goroutines may share a Fleet. Open starts nothing.
package redis
