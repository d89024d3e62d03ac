package auditcmd

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tree"
)

// A verifiedTrail is an audit that was verified, by the name of its file.
type verifiedTrail struct {
	file     string
	last     trail.Link
	from, to time.Time

	// origins are those of its checkpoints.
	origins []string
}

// compareReplicas returns what is wrong with audits that are verified together, although each is whole: two may be of the
// same replica, and one may be missing of which the others have checkpoints of that time.
func compareReplicas(all []verifiedTrail, known *knownCheckpoints) error {
	var errs []error
	files := map[string]string{}
	// Nobody expects the audit of the proxy beside those of runs.
	ofReplicas := false
	ends := map[trail.Hash]string{}
	for _, t := range all {
		same := ends[t.last.Hash]
		for _, origin := range t.origins {
			same = cmp.Or(same, files[origin])
			files[origin] = t.file
			ofReplicas = ofReplicas || !runName.MatchString(origin)
		}
		if ends[t.last.Hash] = t.file; same != "" && t.last.Seq > 0 {
			errs = append(errs, fmt.Errorf("%s and %s are audits of the same proxy: name only one of them", same, t.file))
		}
	}
	var missing []string
	for origin, held := range known.replicas {
		if files[origin] != "" || !ofReplicas || runName.MatchString(origin) {
			continue
		}
		for _, h := range held {
			if slices.ContainsFunc(all, func(t verifiedTrail) bool { return !h.Time.Before(t.from) && !h.Time.After(t.to) }) {
				missing = append(missing, origin)
				break
			}
		}
	}
	if missing != nil {
		slices.Sort(missing)
		expected := slices.Concat(slices.Collect(maps.Keys(files)), missing)
		slices.Sort(expected)
		errs = append(errs, fmt.Errorf("expected the audits of %s: %s not here", strings.Join(expected, ", "), notHere(missing)))
	}
	return errors.Join(errs...)
}

// notHere returns the names with "is" or "are".
func notHere(missing []string) string {
	if len(missing) == 1 {
		return missing[0] + " is"
	}
	return strings.Join(missing, ", ") + " are"
}

// runName matches the end of the origin of a run: the name of its directory.
var runName = regexp.MustCompile(`/[0-9]{8}T[0-9]{6}Z-[0-9]+(\.[0-9]+)?$`)

// swapped says whose tree has the first line of an audit that does not fit its own tree; "": none of the others has.
func swapped(at auditFiles, audits []auditFiles) string {
	for first, err := range trail.Links(at.file, 0) {
		if err != nil || fitsTree(at.file, first) {
			break
		}
		for _, other := range audits {
			if fitsTree(other.file, first) {
				return fmt.Sprintf("; the audit in %s fits the tree in %s: the files may have been swapped", at.file, tree.Path(other.file))
			}
		}
		break
	}
	return ""
}

// fitsTree reports whether the tree beside the audit in a file has a line.
func fitsTree(file string, l trail.Link) bool {
	t, err := tree.OpenToRead(tree.Path(file))
	if err != nil {
		return false
	}
	defer t.Close()
	if l.Seq < t.First() || l.Seq >= t.Next() {
		return false
	}
	leaf, err := t.Leaf(l.Seq)
	return err == nil && leaf == tree.LeafHash(l.Hash)
}
