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
// A robots.txt file is one key, in the octets of robots/cache, and the right to fetch it
// another, which ends by itself ([Fleet.Robots]). Behind them each replica has a store of
// its own, by which it goes while it is alone; what it fetches then it does not tell: the
// others fetch the file once more when they need it. A purge is told when the server is
// there again. It is kept for 31 days in place of the file, and over it nothing is saved
// that may rest on what was purged. Which were made is in a stream, where who was cut off
// reads on; one that has missed more than ten thousand, or some that were gone with all
// else when the server was emptied, goes by what it has until the time of that is over.
// Who starts reads all of it: what its own store has from after a purge is forgotten as
// well then, and loaded from the server, or fetched again.
//
// A Fleet may be shared by any number of goroutines. Open starts nothing.
package redis
