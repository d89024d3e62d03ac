package archive

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/proxy/archive/warc"
)

// A Source says who made a request, and what an Exchange takes memory from.
type Source struct {
	// Whose share of the space the bodies count against.
	Client string

	// Takes bytes of the memory budget, if it has them; nil: the bodies are small.
	Spare func(bytes int64) bool

	// Connections lead to the origin, not to an upstream proxy.
	Direct bool
}

// An Exchange is a request and its response on their way into the archive. Its methods may be called on a
// nil Exchange, which archives nothing. It belongs to one goroutine, except the body of its request.
type Exchange struct {
	archive *Archive
	options *Options
	source  Source
	began   time.Time

	// Of the origin; zero: unknown.
	address netip.Addr

	// WARC-Target-URI.
	target   string
	protocol []string
	ftp      bool
	request  message
	response message
	ended    bool

	// Guards request.body while the body is read.
	uploading sync.Mutex

	// The request's body is no longer kept.
	closed bool
}

// A message is a request or a response.
type message struct {
	// As HTTP/1.1 has it, with the blank line at its end.
	head []byte
	body spool
}

// Begin begins the Exchange of a request that is about to be sent. It returns nil if the response could not be
// archived and is passed on nevertheless (Options.Continue).
func (a *Archive) Begin(from Source) *Exchange {
	o := a.options()
	if o.Continue && a.Err() != nil {
		a.counts.left.Add(1)
		return nil
	}
	x := &Exchange{archive: a, options: o, source: from, began: time.Now()}
	x.request.body, x.response.body = x.spool(), x.spool()
	return x
}

// Upload returns the body of the request, which e copies while it is read. A later call is for another try
// of the request, and the body is copied anew.
func (e *Exchange) Upload(body io.ReadCloser) io.ReadCloser {
	if e == nil || body == nil || body == http.NoBody {
		return body
	}
	e.uploading.Lock()
	defer e.uploading.Unlock()
	// An error of its file does not matter any more.
	e.request.body.close()
	e.request.body = e.spool()
	// Until it was read to its end.
	e.request.body.truncated = "unspecified"
	return &upload{body, e}
}

// spool returns an empty spool.
func (e *Exchange) spool() spool {
	return spool{files: e.archive.spools, client: e.source.Client, spare: e.source.Spare, max: e.options.MaxBody}
}

// An upload is the body of a request.
type upload struct {
	io.ReadCloser
	x *Exchange
}

func (u *upload) Read(b []byte) (int, error) {
	n, err := u.ReadCloser.Read(b)
	u.x.uploading.Lock()
	defer u.x.uploading.Unlock()
	if u.x.closed {
		return n, err
	}
	of := &u.x.request.body
	// End returns its error.
	of.Write(b[:n])
	if err == io.EOF && of.truncated == "unspecified" {
		of.truncated = ""
	}
	return n, err
}

// Respond hands over the response, before its header is changed and its body is read. sent is the request as
// it was sent, from the address of the connection's other end, and version its version of TLS; 0: none. Respond
// returns nil if the response is not archived.
func (e *Exchange) Respond(sent *http.Request, resp *http.Response, from netip.Addr, version uint16) *Exchange {
	if e == nil {
		return nil
	}
	if e.options.Only2xx && resp.StatusCode/100 != 2 {
		e.Discard()
		return nil
	}
	e.target, e.ftp = targetURI(sent, e.options), sent.URL.Scheme == "ftp"
	if e.source.Direct {
		e.address = from
	}
	e.protocol = protocols(sent, resp, version)
	e.request.head = requestHead(sent, e.options)
	e.response.head = responseHead(resp, e.options)
	if resp.Body == nil || resp.Body == http.NoBody {
		return e
	}
	e.response.body.begin(e.response.head)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		// Until it was read to its end.
		e.response.body.truncated = "disconnect"
	}
	return e
}

// Read tells e what a read of the response's body has returned. The error is for the reader in place of
// err.
func (e *Exchange) Read(b []byte, err error) error {
	if e == nil {
		return err
	}
	of := &e.response.body
	of.Write(b)
	if err == io.EOF && of.truncated == "disconnect" {
		of.truncated = ""
	}
	if of.err != nil && !e.options.Continue && (err == nil || err == io.EOF) {
		return e.archive.setFailure(of.err)
	}
	return err
}

// EndsLast reports whether the end of the response must not reach the client before End has returned.
func (e *Exchange) EndsLast() bool { return e != nil && !e.options.Continue }

// Discard ends e without a record.
func (e *Exchange) Discard() {
	if e == nil || e.ended {
		return
	}
	e.ended = true
	e.uploading.Lock()
	defer e.uploading.Unlock()
	e.closed = true
	// Nothing of it is needed.
	e.request.body.close()
	e.response.body.close()
}

// End writes the records. about are the fields of the metadata record, as warc.AppendField writes them. It returns
// where the record of the response is. The error wraps ErrUnwritable; with Options.Continue there is none. Later
// calls do nothing.
func (e *Exchange) End(about []byte) (at audit.Archived, err error) {
	if e == nil || e.ended || e.response.head == nil {
		e.Discard()
		return at, nil
	}
	a := e.archive
	e.uploading.Lock()
	e.closed = true
	e.uploading.Unlock()
	defer e.Discard()
	if err = a.Err(); err == nil {
		if at, err = e.write(about); err != nil {
			err = a.setFailure(err)
		}
	}
	if err != nil {
		a.counts.left.Add(1)
		if e.options.Continue {
			return audit.Archived{}, nil
		}
	}
	return at, err
}

// maxURI is the maximum length of WARC-Target-URI in bytes. Readers limit the heads of records.
const maxURI = 64 << 10

var errLongURI = &exchangeError{fmt.Sprintf("the URL is longer than %d KiB", maxURI>>10)}

// write writes the records of e to a file.
func (e *Exchange) write(about []byte) (at audit.Archived, err error) {
	if len(e.target) > maxURI {
		return at, errLongURI
	}
	for _, m := range []*message{&e.request, &e.response} {
		if m.body.err != nil {
			return at, m.body.err
		}
	}
	records, original, err := e.records(about)
	if err != nil {
		return at, err
	}
	a := e.archive
	written := func(file string) {
		if original != nil {
			original.File = file
			a.index.add(e.response.body.digest(), *original)
		}
	}
	small := e.request.body.file == nil && e.response.body.file == nil
	// bytes of the records before that of the response.
	var before int64
	if small {
		at.File, at.Offset, before, err = e.writeSmall(records, written)
	} else {
		at.File, at.Offset, before, err = e.writeLarge(records, written)
	}
	if err != nil {
		return audit.Archived{}, err
	}
	at.Offset += before
	at.ID = records.responseID
	a.counts.records.Add(uint64(len(records.all)))
	if records.revisit {
		a.counts.revisits.Add(1)
	}
	for _, m := range []*message{&e.request, &e.response} {
		if m.body.truncated != "" {
			a.counts.truncated.Add(1)
		}
	}
	return at, nil
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxBuffer is the size in bytes of the largest buffer that is used again.
const maxBuffer = 4 * maxInMemory

// writeSmall writes records whose bodies are in memory. It encodes them before it takes the lock of the file.
func (e *Exchange) writeSmall(records *records, written func(file string)) (file string, offset, before int64, err error) {
	b := buffers.Get().(*bytes.Buffer)
	defer func() {
		if b.Reset(); b.Cap() <= maxBuffer {
			buffers.Put(b)
		}
	}()
	if before, err = records.encode(b, e.options.Compress); err != nil {
		return "", 0, 0, err
	}
	file, offset, err = e.archive.files.appendSmall(e.options, func(out io.Writer) error {
		_, err := out.Write(b.Bytes())
		return err
	}, written)
	return file, offset, before, err
}

// writeLarge writes records with a body that is in a file.
func (e *Exchange) writeLarge(records *records, written func(file string)) (file string, offset, before int64, err error) {
	file, offset, err = e.archive.files.appendLarge(e.source.Client, e.options, func(out io.Writer) (err error) {
		before, err = records.encode(out, e.options.Compress)
		return err
	}, written)
	return file, offset, before, err
}

// records are the records of one exchange, in their order.
type records struct {
	all []record

	// index of that of the response.
	response   int
	responseID string
	revisit    bool
}

// encode writes the records, and returns how many bytes are before that of the response.
func (r *records) encode(out io.Writer, compress bool) (before int64, err error) {
	counted := &countingWriter{Writer: out}
	e := newEncoder(counted, compress)
	defer e.free()
	for i, rec := range r.all {
		if i == r.response {
			before = counted.n
		}
		if err := e.write(rec); err != nil {
			return 0, err
		}
	}
	return before, nil
}

type countingWriter struct {
	io.Writer
	n int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.n += int64(n)
	return n, err
}

// records makes the records of e. original is what the index has to learn; nil: nothing.
func (e *Exchange) records(about []byte) (all *records, original *Original, err error) {
	requestID, responseID := warc.NewID(), warc.NewID()
	all = &records{responseID: responseID}
	if !e.ftp {
		rec, err := e.requestRecord(requestID, responseID)
		if err != nil {
			return nil, nil, err
		}
		all.all, all.response = append(all.all, rec), 1
	}
	rec, original, err := e.responseRecord(responseID, requestID)
	if err != nil {
		return nil, nil, err
	}
	all.revisit = rec.body == nil && e.response.body.size > 0
	all.all = append(all.all, rec, e.metadataRecord(about, responseID))
	return all, original, nil
}

// head begins the head of a record.
func (e *Exchange) head(kind, id string) []byte {
	h := warc.AppendType(make([]byte, 0, 1<<10), kind)
	h = warc.AppendField(h, "WARC-Record-ID", id)
	h = warc.AppendField(h, "WARC-Date", warc.FormatTime(e.began))
	return warc.AppendField(h, "WARC-Target-URI", e.target)
}

// fetched appends what a record of a request or response says of the connection.
func (e *Exchange) fetched(h []byte) []byte {
	if e.address.IsValid() {
		h = warc.AppendField(h, "WARC-IP-Address", e.address.WithZone("").String())
	}
	for _, p := range e.protocol {
		h = warc.AppendField(h, "WARC-Protocol", p)
	}
	return h
}

func (e *Exchange) requestRecord(id, responseID string) (record, error) {
	m := &e.request
	digest, err := m.body.blockDigest(m.head)
	if err != nil {
		return record{}, err
	}
	h := e.fetched(e.head("request", id))
	h = warc.AppendField(h, "WARC-Concurrent-To", responseID)
	h = warc.AppendField(h, "Content-Type", warc.HTTPRequest)
	h = appendDigest(h, "WARC-Block-Digest", digest)
	if m.body.size > 0 {
		h = appendDigest(h, "WARC-Payload-Digest", m.body.digest())
	}
	return record{m.finish(h, int64(len(m.head))+m.body.size), m.head, &m.body}, nil
}

// finish completes the head of a record with a block of length bytes.
func (m *message) finish(h []byte, length int64) []byte {
	if m.body.truncated != "" {
		h = warc.AppendField(h, "WARC-Truncated", m.body.truncated)
	}
	return warc.AppendLength(h, length)
}

// responseRecord returns the response, or a revisit record in its place, or the resource record of a file
// from an FTP server.
func (e *Exchange) responseRecord(id, requestID string) (rec record, original *Original, err error) {
	m := &e.response
	payload := m.body.digest()
	if e.options.Dedup && m.body.size > 0 && m.body.truncated == "" && !e.ftp {
		// A revisit repeats the URL.
		if of, ok := e.archive.index.find(payload); ok && !(e.options.DropQuery && strings.Contains(of.URI, "?")) {
			return e.revisitRecord(id, requestID, of), nil, nil
		}
		original = &Original{ID: id, URI: e.target, Date: warc.FormatTime(e.began)}
	}
	kind, content, head := "response", warc.HTTPResponse, m.head
	if e.ftp {
		kind, content, head = "resource", "application/octet-stream", nil
		m.body.block = m.body.payload
	}
	digest, err := m.body.blockDigest(head)
	if err != nil {
		return rec, nil, err
	}
	h := e.fetched(e.head(kind, id))
	if !e.ftp {
		h = warc.AppendField(h, "WARC-Concurrent-To", requestID)
	}
	h = warc.AppendField(h, "Content-Type", content)
	h = appendDigest(h, "WARC-Block-Digest", digest)
	h = appendDigest(h, "WARC-Payload-Digest", payload)
	return record{m.finish(h, int64(len(head))+m.body.size), head, &m.body}, original, nil
}

// revisitRecord returns the record of a response with the payload of an earlier record (ISO 28500 6.7).
func (e *Exchange) revisitRecord(id, requestID string, of Original) record {
	m := &e.response
	var none spool
	// It reads no file.
	digest, _ := none.blockDigest(m.head)
	h := e.fetched(e.head("revisit", id))
	h = warc.AppendField(h, "WARC-Concurrent-To", requestID)
	h = warc.AppendField(h, "WARC-Profile", warc.IdenticalPayload)
	h = warc.AppendField(h, "WARC-Refers-To", of.ID)
	h = warc.AppendField(h, "WARC-Refers-To-Target-URI", of.URI)
	h = warc.AppendField(h, "WARC-Refers-To-Date", of.Date)
	h = warc.AppendField(h, "Content-Type", warc.HTTPResponse)
	h = appendDigest(h, "WARC-Block-Digest", digest)
	h = appendDigest(h, "WARC-Payload-Digest", m.body.digest())
	return record{warc.AppendLength(h, int64(len(m.head))), m.head, nil}
}

func (e *Exchange) metadataRecord(about []byte, responseID string) record {
	var none spool
	// It reads no file.
	digest, _ := none.blockDigest(about)
	h := warc.AppendField(e.head("metadata", warc.NewID()), "WARC-Concurrent-To", responseID)
	h = warc.AppendField(h, "Content-Type", warc.Fields)
	h = appendDigest(h, "WARC-Block-Digest", digest)
	return record{head: warc.AppendLength(h, int64(len(about))), block: about}
}
