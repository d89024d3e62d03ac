// Package e2e holds the end-to-end tests: real origins, a DNS server and a
// certificate authority of the tests' own, the built binary, and the clients
// that people use.
//
// It has no code but tests and is imported by nobody. Everything happens on
// loopback, on ports from 1024 up. A client that is not on the machine skips
// its tests and says so; with REQUIRE_PEERS=1 it fails them.
package e2e
