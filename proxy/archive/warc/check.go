package warc

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"net/http/httputil"
	"slices"
	"strings"
)

// maxFaults bounds CheckResult.Faults.
const maxFaults = 20

// maxWaiting bounds how many references to records that were not read yet a Check keeps.
const maxWaiting = 200_000

// A Check verifies the files of an archive. It needs about 50 bytes of memory for each record, and
// 100 for each reference to a record that it has not read. Create one with NewCheck. It is for one
// goroutine.
type Check struct {
	// Partial says that the files have some records of an archive, which may name others.
	Partial bool

	result CheckResult
	seed   maphash.Seed

	// names are the names of the files.
	names []string

	// records has the records that were read, by the hash of their IDs.
	records map[uint64]checked

	// waiting has the references to records that were not read yet, by the hash of their IDs. waits counts them.
	waiting map[uint64][]*reference
	waits   int

	// last has the references of the last record.
	last []*reference
}

// A checked is what a Check keeps of a record. proved says that its payload was read, and has the digest.
type checked struct {
	file    int32
	payload sum
	proved  bool
}

// A sum is what a Check keeps of the digest of a payload: its size in bytes, and a hash of it. The zero sum is that of
// an unknown digest.
type sum struct {
	size int8
	hash uint64
}

// A reference is a record that names another one.
type reference struct {
	field, id string
	file      int32
	offset    int64

	// end says that the record is the last one of its file, and growing that this file is being written.
	end     bool
	growing bool

	// payload is what the payload of the other record has; zero: anything.
	payload sum
}

// A CheckResult says what a Check has found.
type CheckResult struct {
	Files   int
	Records int

	// Digests counts the digests that are right, and Unknown those of unknown algorithms, which were not compared.
	Digests int
	Unknown int

	// Bare counts the records with a block but without a digest of it.
	Bare int

	// Blank counts the records that replace erased ones.
	Blank int

	// Shared counts the records that share their gzip member with others.
	Shared int

	// Missing counts the records whose WARC-Refers-To names a record that these files do not have.
	Missing int

	// Growing counts the files whose last record is still being written.
	Growing int

	// Ignored counts the references that were not followed, since too many others were open.
	Ignored int

	// Cut counts the files whose last record names records that were not written, as after a crash.
	Cut int

	// Faults are the first faults. More counts the further ones.
	Faults []error
	More   int
}

// NewCheck returns a Check.
func NewCheck() *Check {
	return &Check{seed: maphash.MakeSeed(), records: map[uint64]checked{}, waiting: map[uint64][]*reference{}}
}

// File verifies the next file. open says that the file is being written, so that it may end inside a record.
func (c *Check) File(name string, file io.Reader, open bool) {
	c.names, c.last = append(c.names, name), nil
	c.result.Files++
	_, err := ForEach(file, c.record)
	for _, ref := range c.last {
		ref.end, ref.growing = true, open
	}
	switch {
	case open && errors.Is(err, ErrTorn):
		c.result.Growing++
	case err != nil:
		c.fault("%s: %w", name, err)
	}
}

// A Match says what a Check has of a payload.
type Match int

const (
	// Gone: there is no record.
	Gone Match = iota
	// Other: the record has another payload.
	Other
	// Unknown: the record has no digest of this kind, or no payload, such as a revisit of a record that is not there.
	Unknown
	// Same: the payload has the digest.
	Same
)

// Find looks for a record by its ID in the files that were verified, and compares the digest of its payload with a SHA-256.
func (c *Check) Find(id string, sha256 []byte) Match {
	r, found := c.records[maphash.String(c.seed, id)]
	payload := sum{int8(len(sha256)), maphash.Bytes(c.seed, sha256)}
	switch {
	case !found:
		return Gone
	case payload.size == 0 || r.payload.size != payload.size:
		return Unknown
	case r.payload != payload:
		return Other
	case !r.proved:
		return Unknown
	}
	return Same
}

// Result returns what was found. No file may be verified after that.
func (c *Check) Result() CheckResult {
	cut := map[int32]bool{}
	left := slices.Concat(slices.Collect(maps.Values(c.waiting))...)
	slices.SortFunc(left, func(a, b *reference) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.offset, b.offset))
	})
	for _, ref := range left {
		switch {
		case ref.field == refersTo:
			c.result.Missing++
		case c.Partial:
		case !ref.end:
			c.fault("%s: no record has the ID in %s, %s", c.place(ref.file, ref.offset), ref.field, ref.id)
		case !ref.growing:
			cut[ref.file] = true
		}
	}
	c.result.Cut = len(cut)
	return c.result
}

// place names a record.
func (c *Check) place(file int32, offset int64) string {
	return fmt.Sprintf("%s: record at offset %d", c.names[file], offset)
}

func (c *Check) fault(format string, args ...any) {
	if len(c.result.Faults) == maxFaults {
		c.result.More++
		return
	}
	c.result.Faults = append(c.result.Faults, fmt.Errorf(format, args...))
}

// record verifies a record. The error is that of its block.
func (c *Check) record(rec *Record) error {
	c.result.Records++
	if rec.IsBlank() {
		c.result.Blank++
	}
	payload, faults, err := c.digests(rec)
	if err != nil {
		return err
	}
	if rec.Size == 0 {
		c.result.Shared++
	}
	faults = append(faults, fieldFaults(rec)...)
	file := int32(len(c.names) - 1)
	if id := rec.ID(); id != "" {
		key := maphash.String(c.seed, id)
		if earlier, ok := c.records[key]; ok && earlier.file == file {
			faults = append(faults, fmt.Errorf("an earlier record of the file has the same ID, %.100q", id))
		}
		known := checked{file, c.sum(payload), payload.compared}
		original := c.records[maphash.String(c.seed, rec.Get(refersTo))]
		if rec.Type() == TypeRevisit && original.payload == known.payload {
			known.proved = original.proved
		}
		c.records[key] = known
		for _, ref := range c.waiting[key] {
			c.compare(ref, known)
		}
		c.waits -= len(c.waiting[key])
		delete(c.waiting, key)
	}
	for _, fault := range faults {
		c.fault("%s: %w", c.place(file, rec.Offset), fault)
	}
	c.references(rec, file, payload)
	return nil
}

const (
	concurrentTo = "WARC-Concurrent-To"
	refersTo     = "WARC-Refers-To"
	refersToURI  = "WARC-Refers-To-Target-URI"
)

// references notes the records that a record names. payload is the record's own digest.
func (c *Check) references(rec *Record, file int32, payload digest) {
	c.last = nil
	for _, id := range rec.All(concurrentTo) {
		c.refer(id, reference{field: concurrentTo, file: file, offset: rec.Offset})
	}
	if id := rec.Get(refersTo); id != "" {
		ref := reference{field: refersTo, file: file, offset: rec.Offset}
		if strings.HasSuffix(rec.Get("WARC-Profile"), "/identical-payload-digest") {
			ref.payload = c.sum(payload)
		}
		c.refer(id, ref)
	}
}

// refer notes that a record names the one with this ID.
func (c *Check) refer(id string, ref reference) {
	key := maphash.String(c.seed, id)
	ref.id = fmt.Sprintf("%.100q", id)
	found, ok := c.records[key]
	switch {
	case ok:
		c.compare(&ref, found)
	case c.waits == maxWaiting:
		c.result.Ignored++
	default:
		c.waits++
		c.waiting[key] = append(c.waiting[key], &ref)
		c.last = append(c.last, &ref)
	}
}

// compare compares the payload of a revisit with that of its original.
func (c *Check) compare(ref *reference, found checked) {
	if ref.payload.size != 0 && ref.payload.size == found.payload.size && ref.payload != found.payload {
		c.fault("%s: another payload than that of the record in %s, %s", c.place(ref.file, ref.offset), ref.field, ref.id)
	}
}

func (c *Check) sum(d digest) sum {
	if d.want == nil {
		return sum{}
	}
	return sum{int8(len(d.want)), maphash.Bytes(c.seed, d.want)}
}

// digests reads the block and compares its digests. It returns the digest of the payload as the
// record has it. The error is that of the block.
func (c *Check) digests(rec *Record) (payload digest, faults []error, err error) {
	parse := func(field string) (d digest) {
		value := rec.Get(field)
		if value == "" {
			return d
		}
		d, known, err := parseDigest(value)
		if err != nil {
			faults = append(faults, err)
		} else if !known {
			c.result.Unknown++
		}
		return d
	}
	compare := func(what string, ds ...digest) {
		if slices.ContainsFunc(ds, digest.matches) {
			c.result.Digests++
		} else {
			faults = append(faults, fmt.Errorf("the %s has not the digest %s", what, ds[0].field))
		}
	}
	block := parse("WARC-Block-Digest")
	payload = parse("WARC-Payload-Digest")
	if block.Hash == nil && payload.Hash == nil && rec.Length > 0 {
		c.result.Bare++
	}
	in := rec.Block
	if block.Hash != nil {
		in = io.TeeReader(in, block)
	}
	// own are the digests of the payload, as readers and as some writers understand it.
	var own []digest
	if rec.Type() != TypeRevisit {
		var fault error
		if own, fault = hashPayload(rec, in, payload); fault != nil {
			faults = append(faults, fault)
		}
	}
	if _, err = io.Copy(io.Discard, in); err != nil {
		return payload, nil, err
	}
	if block.Hash != nil {
		compare("block", block)
	}
	if own != nil {
		compare("payload", own...)
		payload.compared = slices.ContainsFunc(own, digest.matches)
	}
	return payload, faults, nil
}

// hashPayload hashes the payload of a record from its block. Some writers, such as wget, hash the
// body with its transfer coding: then there is a second digest. There is none if want is zero.
func hashPayload(rec *Record, block io.Reader, want digest) (digests []digest, fault error) {
	head, body := []byte(nil), block
	if rec.IsHTTP() {
		head, body, fault = HTTPHead(block)
		if fault != nil && rec.Get("WARC-Truncated") != "" {
			return nil, nil
		}
	}
	if fault != nil || want.Hash == nil {
		return nil, fault
	}
	if !isChunked(head) {
		// The caller reads the block to its end, and gets its error.
		io.Copy(want, body)
		return []digest{want}, nil
	}
	// The field was parsed before without an error.
	coded, _, _ := parseDigest(want.field)
	body = io.TeeReader(body, coded)
	// After an error of the coding, want does not match, but coded may.
	io.Copy(want, httputil.NewChunkedReader(body))
	io.Copy(io.Discard, body)
	return []digest{want, coded}, nil
}
