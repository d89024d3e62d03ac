// Package audit keeps the evidence: one [Record] for each request, handed to
// every [Sink]: the file of JSON lines ([Log]), the tally of a run ([Tally]).
//
// A Record is built in one place, the proxy, and never changed after it was
// handed over. The Log comes first: a refusal's line is written to the file
// before the client can read the answer, an allowed request's when it ends, and the
// robots.txt that either rests on is kept before. Lines are chained and files set
// aside as package trail has it; what reads them is there, and takes no lock.
//
// There is one exception. Refusals that the request and the configuration alone decide
// ([IsCheap]) cost their sender nothing, and a record of each would push older records out
// of the files. The Log records at most 100 of these refusals a second for one client. It
// counts the others, and writes one line a second that says how many there were and why.
//
// Long strings cannot fill the files either: a line without its URL has at most 4 KiB,
// whatever clients and origins send, and a URL at most three times the bytes that it was
// sent with.
//
// A Log that cannot write (a full disk, a file or directory that was taken away, one
// that may only be read) says so in [Log.Err] until a probe succeeds, and the
// proxy then refuses what follows (unless the configuration says otherwise). What it
// could not write meanwhile is kept, up to a bound, and the number of records beyond
// that is a line of its own. After a crash what stands behind the last whole line is
// set aside, and a line says so: no request's line, if it was a refusal that was
// answered. There is no error that has a Log write to a chain that another writes.
//
// All Sinks here may be shared by any number of goroutines.
package audit

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"sync/atomic"
	"time"

	"robotsproxy/policy"
)

// A Record is what is kept of one request.
type Record struct {
	Time        time.Time       // when it arrived
	ID          string          // names it, here and in the answer to the client
	Request     policy.Request  // who asked for what
	Target      string          // as the client wrote it, where it could not be normalised
	Remote      string          // the address and port that the client asked from; in no line, nor in a line's error unless Client is
	Decision    policy.Decision // and on what it rests
	Monitor     bool            // the decision was recorded only, not enforced
	Slot        bool            // the pace gave it one, at once or after a wait
	Waited      time.Duration   // for a slot, whether or not there came one
	BackOff     time.Duration   // the pause of the host that held the request up, or that its answer began; zero: none
	Slowed      time.Duration   // the least time between two requests that held it up, since the host answers slowly; zero: none did
	StoreAway   bool            // the store that the replicas share was away, and the request was paced without it, or refused its turn
	Cached      bool            // the request for robots.txt was answered with the cached copy: nothing went out
	Preferences Preferences     // of the origin, in its answer's header
	Status      int             // answered; 0 where no answer was possible
	Bytes       int64           // of the body, or of both ways of a tunnel, sent on
	Took        time.Duration   // from arrival to the end
	Err         error           // what went wrong, in full; for the record only

	kept bool // Log.Keep was called for it
}

// Blocked says whether the request was decided against.
func (r *Record) Blocked() bool { return r.Decision.Verdict != policy.Allow }

// Refused says whether the request was decided against and therefore not sent on.
func (r *Record) Refused() bool { return r.Blocked() && !r.Monitor }

// A Sink takes Records. Write must not keep or change r's insides, and must
// not hold a request up, but for the Log, whose error refuses it.
type Sink interface {
	Write(r *Record) error
}

// Fanout hands each Record to all sinks in their order; the first error is the
// answer, and no reason to leave the others out.
func Fanout(sinks ...Sink) Sink { return fanout(sinks) }

type fanout []Sink

func (f fanout) Write(r *Record) error {
	var first error
	for _, s := range f {
		if err := s.Write(r); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// IDs gives out names for Records: a prefix of this process, and a count.
type IDs struct {
	prefix string
	last   atomic.Uint64
}

// NewIDs begins a series with a random prefix, so that two processes do not
// give the same name.
func NewIDs() *IDs {
	var b [6]byte
	rand.Read(b[:]) // never fails (crypto/rand since Go 1.24)
	return &IDs{prefix: hex.EncodeToString(b[:]) + "-"}
}

// Next gives the next name.
func (i *IDs) Next() string {
	var b [40]byte
	return string(strconv.AppendUint(append(b[:0], i.prefix...), i.last.Add(1), 36))
}
