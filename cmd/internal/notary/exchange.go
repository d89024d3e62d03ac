package notary

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"robotsproxy/policy/audit/checkpoint"
)

const (
	// storeAt is Place.At of the exchange with other replicas.
	storeAt = "the shared store"

	// exchangeTimeout bounds one exchange.
	exchangeTimeout = 10 * time.Second

	// latestTimeout bounds the search for the newest checkpoint of this replica.
	latestTimeout = time.Second

	// maxOrigins bounds the origins in one exchange: there are at most 10,000 replicas.
	maxOrigins = 10_000
)

// exchanged is what the Notary knows of the checkpoints of other replicas.
type exchanged struct {
	// last names the last note that was read.
	last string

	// newest has the number of the last line of the newest checkpoint in the file by its origin.
	newest map[string]uint64
}

// exchange gives the other replicas a checkpoint, and adds their newest ones to the file in the state directory. So if one
// replica writes its audit anew, what the others have contradicts it.
func (n *Notary) exchange(ctx context.Context, _ string, c signed) error {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	if err := n.o.Exchange.ShareCheckpoint(ctx, c.text); err != nil {
		return err
	}
	others, last, err := n.readOthers(ctx, c.Origin)
	if err != nil {
		return err
	}
	most := n.o.Settings().Replicas
	for _, of := range others[:min(len(others), most)] {
		if n.exchanged.newest[of.Origin] == of.Seq {
			continue
		}
		if err := appendNote(filepath.Join(n.o.Dir, CheckpointsName), of.text); err != nil {
			return err
		}
		if len(n.exchanged.newest) >= 2*most {
			// Replicas have got other names. Whose note is known is forgotten, so that some stand twice in the file.
			clear(n.exchanged.newest)
		}
		n.exchanged.newest[of.Origin] = of.Seq
	}
	n.exchanged.last = last
	return nil
}

// newestShared returns the newest checkpoint of an origin in e that one of the keys has signed, and that was made after begun;
// zero: there is none.
func newestShared(e Exchange, origin string, keys []checkpoint.Key, begun time.Time) (newest checkpoint.Checkpoint, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), latestTimeout)
	defer cancel()
	known := checkpoint.Verifiers(keys)
	for last := ""; ; {
		notes, next, err := e.Checkpoints(ctx, last)
		if err != nil {
			return checkpoint.Checkpoint{}, fmt.Errorf("%s: %w", storeAt, err)
		}
		if next == last {
			return newest, nil
		}
		last = next
		for _, text := range notes {
			if c, err := checkpoint.Open(text, known); err == nil && c.Origin == origin && c.Time.After(begun) && c.Seq > newest.Seq {
				newest = c
			}
		}
	}
}

// readOthers returns the newest checkpoints of other origins that were shared since the last call, the newest first, and the
// name of the last note.
func (n *Notary) readOthers(ctx context.Context, own string) (all []signed, last string, err error) {
	byOrigin := map[string]signed{}
	for last = n.exchanged.last; ; {
		notes, next, err := n.o.Exchange.Checkpoints(ctx, last)
		if err != nil {
			return nil, "", err
		}
		if next == last {
			break
		}
		last = next
		for _, text := range notes {
			// Nobody here knows the keys of the others.
			of, err := checkpoint.Open(text, nil)
			if errors.Is(err, checkpoint.ErrUntrusted) && of.Origin != own && len(byOrigin) < maxOrigins {
				byOrigin[of.Origin] = signed{of, text}
			}
		}
	}
	newestFirst := func(a, b signed) int { return b.Time.Compare(a.Time) }
	return slices.SortedFunc(maps.Values(byOrigin), newestFirst), last, nil
}
