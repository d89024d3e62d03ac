package audit

import (
	"errors"
	"fmt"
	"io/fs"

	"robotsproxy/policy/audit/trail"
)

// compareEnd compares the trail at path, which ends with the line last, with what its previous
// writer knew: that the disk had the line known. It returns the line after which the chain
// continues, and an event if the trail is not as that writer left it. If lines are missing at the
// end, the chain continues after known, so that their numbers are not used again.
func compareEnd(path string, last, known trail.Link) (from trail.Link, e *event) {
	if last.Seq < known.Seq {
		return known, &event{
			name: trail.EventCut, first: last.Seq + 1, last: known.Seq,
			detail: fmt.Sprintf("the lines seq %d to %d are missing, but were on the disk when the proxy last ran", last.Seq+1, known.Seq),
		}
	}
	if known.Seq == 0 {
		return last, nil
	}
	found, err := last, error(nil)
	if last.Seq > known.Seq {
		found, err = trail.FindLink(path, known.Seq)
	}
	switch {
	case errors.Is(err, trail.ErrNoRecord), errors.Is(err, fs.ErrNotExist):
		return last, nil // its segment was removed, or its absence is a gap that verification finds
	case err != nil && !errors.Is(err, trail.ErrChanged):
		return last, changedEvent(known.Seq, fmt.Sprintf("cannot be read: %v", err))
	case err != nil || found.Hash != known.Hash:
		return last, changedEvent(known.Seq, "is not the line that was on the disk when the proxy last ran")
	}
	return last, nil
}

func changedEvent(seq uint64, what string) *event {
	return &event{name: trail.EventChanged, first: seq, last: seq, detail: fmt.Sprintf("the line seq %d %s", seq, what)}
}
