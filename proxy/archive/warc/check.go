package warc

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http/httputil"
	"slices"
	"strings"
)

// maxFaults bounds CheckResult.Faults.
const maxFaults = 20

// A Check verifies the files of an archive. It needs about 50 bytes of memory for each record.
// Create one with NewCheck. It is for one goroutine.
type Check struct {
	result  CheckResult
	seed    maphash.Seed
	records map[uint64]checked // by the hash of their IDs
	waiting []reference        // to records that were not read yet
	last    int                // index in waiting of the first reference of the last record
	file    string
	files   int32
}

// A checked is what a Check keeps of a record.
type checked struct {
	file    int32
	size    int8   // of the payload's digest, in bytes; 0: unknown
	payload uint64 // hash of that digest
}

// A reference is a record that names another one.
type reference struct {
	place, field, id string
	end              int32 // number of the file whose last record it is; 0: of none
	growing          bool  // that file is being written
	size             int8  // of the digest that the payload of the other record has, in bytes; 0: any
	payload          uint64
}

// A CheckResult says what a Check has found.
type CheckResult struct {
	Files   int
	Records int
	Digests int     // that are right
	Unknown int     // digests of unknown algorithms, which were not compared
	Bare    int     // records with a block but without a digest of it
	Shared  int     // records that share their gzip member with others
	Missing int     // records that WARC-Refers-To names and that these files do not have
	Growing int     // files whose last record is still being written
	Cut     int     // files whose last record names records that were not written, as after a crash
	Faults  []error // the first ones
	More    int     // further faults
}

// NewCheck returns a Check.
func NewCheck() *Check {
	return &Check{seed: maphash.MakeSeed(), records: map[uint64]checked{}}
}

// File verifies the next file. open says that its writer may be writing it: then it may be torn.
func (c *Check) File(name string, file io.Reader, open bool) {
	c.file, c.last = name, len(c.waiting)
	c.files++
	c.result.Files++
	r, err := NewReader(file)
	for err == nil {
		var rec *Record
		if rec, err = r.Next(); err == nil {
			err = c.record(rec)
		}
	}
	for i := range c.waiting[c.last:] {
		c.waiting[c.last+i].end, c.waiting[c.last+i].growing = c.files, open
	}
	switch {
	case err == io.EOF:
	case open && errors.Is(err, ErrTorn):
		c.result.Growing++
	default:
		c.fault("%s: %w", name, err)
	}
}

// Result returns what was found. No file may be verified after that.
func (c *Check) Result() CheckResult {
	cut := map[int32]bool{}
	for _, ref := range c.waiting {
		found, ok := c.records[maphash.String(c.seed, ref.id)]
		switch {
		case ok:
			c.compare(ref, found)
		case ref.field == refersTo:
			c.result.Missing++
		case ref.end == 0:
			c.fault("%s: no record has the ID in %s, %.100q", ref.place, ref.field, ref.id)
		case !ref.growing:
			cut[ref.end] = true
		}
	}
	c.result.Cut = len(cut)
	return c.result
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
	place := fmt.Sprintf("%s: record at offset %d", c.file, rec.Offset)
	payload, faults, err := c.digests(rec)
	if err != nil {
		return err
	}
	if rec.Size == 0 {
		c.result.Shared++
	}
	faults = append(faults, fieldFaults(rec)...)
	if id := rec.ID(); id != "" {
		key := maphash.String(c.seed, id)
		if c.records[key].file == c.files {
			faults = append(faults, fmt.Errorf("an earlier record of the file has the same ID, %.100q", id))
		}
		known := checked{file: c.files}
		known.size, known.payload = c.sum(payload)
		c.records[key] = known
	}
	for _, fault := range faults {
		c.fault("%s: %w", place, fault)
	}
	c.references(rec, place, payload)
	return nil
}

const (
	concurrentTo = "WARC-Concurrent-To"
	refersTo     = "WARC-Refers-To"
)

// references notes the records that a record names. payload is the record's own digest.
func (c *Check) references(rec *Record, place string, payload digest) {
	c.last = len(c.waiting)
	note := func(ref reference) {
		ref.place = place
		if found, ok := c.records[maphash.String(c.seed, ref.id)]; ok {
			c.compare(ref, found)
		} else {
			c.waiting = append(c.waiting, ref)
		}
	}
	for _, id := range rec.All(concurrentTo) {
		note(reference{field: concurrentTo, id: id})
	}
	if id := rec.Get(refersTo); id != "" {
		ref := reference{field: refersTo, id: id}
		if strings.HasSuffix(rec.Get("WARC-Profile"), "/identical-payload-digest") {
			ref.size, ref.payload = c.sum(payload)
		}
		note(ref)
	}
}

// compare compares the payload of a revisit with that of its original.
func (c *Check) compare(ref reference, found checked) {
	if ref.size != 0 && ref.size == found.size && ref.payload != found.payload {
		c.fault("%s: another payload than that of the record in %s, %.100q", ref.place, ref.field, ref.id)
	}
}

// sum returns the size and the hash of the sum of a digest.
func (c *Check) sum(d digest) (int8, uint64) { return int8(len(d.sum)), maphash.Bytes(c.seed, d.sum) }

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
	var own []digest // of the payload, as readers and as some writers understand it
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
	}
	return payload, faults, nil
}

// hashPayload hashes the payload of a record from its block. Some writers, such as wget, hash the
// body with its transfer coding: then there is a second digest. There is none if want is zero.
func hashPayload(rec *Record, block io.Reader, want digest) (digests []digest, fault error) {
	if !rec.IsHTTP() {
		if want.Hash == nil {
			return nil, nil
		}
		io.Copy(want, block) // the caller reads the error again
		return []digest{want}, nil
	}
	head, body, err := HTTPHead(block)
	if err != nil {
		if rec.Get("WARC-Truncated") == "" {
			fault = err
		}
		return nil, fault
	}
	if want.Hash == nil {
		return nil, nil
	}
	if !isChunked(head) {
		io.Copy(want, body)
		return []digest{want}, nil
	}
	coded, _, _ := parseDigest(want.field) // was parsed before
	body = io.TeeReader(body, coded)
	io.Copy(want, httputil.NewChunkedReader(body)) // after an error want differs, but coded may be right
	io.Copy(io.Discard, body)
	return []digest{want, coded}, nil
}
