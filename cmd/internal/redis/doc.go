// Package redis keeps what the replicas of a fleet have in common in a Redis or Valkey
// server, by way of go-redis: the turns of each host (it is a pace.Store), and what is
// known of robots.txt files.
//
// A turn is one script's work (scripts/reserve.lua): the host's pause, its clocks, a place
// among the requests under way, and whether the server still is the one that it was. Its
// times are the server's, so that the replicas' clocks need not agree. A host's pause and
// clocks are one key, which ends when they can hold nobody up; the places that are taken
// are another, and a client's own clock a third.
//
// How it fails: as soon as a call fails or takes longer than a second, this replica is
// alone, and goes by its share of the pace, a replicas-th. So it does while it returns:
// until a probe has succeeded and, for a second, all has been told what was sent
// meanwhile. A server that was emptied, or that is another one than before, is noticed by
// the epoch that is kept in it and its own name for itself, and counts as one that was
// away. Who is alone cannot be seen by the others, who each have 1/replicas of the pace
// times the number of those that can be seen; so however the fleet is cut apart, its parts
// have no more than all of it. A replica that ended in order leaves its share to the
// others for ten minutes, for the one that comes after it, unless that is there already.
// Where the next cannot reach the server it has a share of its own beside that one, until
// the ten minutes are over.
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
