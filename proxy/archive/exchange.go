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
	// Client is the client against whose share of the space the bodies count.
	Client string

	// Spare takes bytes of the memory budget, and reports whether the budget has them; nil: the bodies are small.
	Spare func(bytes int64) bool

	// Direct says that connections lead to the origin, not to an upstream proxy.
	Direct bool
}

// An Exchange is a request and its response on their way into the archive. Its methods may be called on a
// nil Exchange, which archives nothing. It belongs to one goroutine, except the body of its request.
type Exchange struct {
	archive *Archive
	options *Options
	source  Source
	began   time.Time

	// address is the address of the origin; zero: unknown.
	address netip.Addr

	// target is WARC-Target-URI, and protocol the values of WARC-Protocol.
	target   string
	protocol []string
	ftp      bool
	request  message
	response message

	// uploading guards request.body while the body is read, and closed.
	uploading sync.Mutex

	// closed says that the exchange has ended, so the request's body is no longer kept.
	closed bool
}

// A message is a request or a response.
type message struct {
	// head is the head as HTTP/1.1 has it, with the blank line at its end.
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
	// An error of the former body's file does not matter any more.
	e.request.body.close()
	e.request.body = e.spool()
	// Read removes the mark when it reaches the end of the body.
	e.request.body.truncated = "unspecified"
	return &upload{body, e}
}

// spool returns an empty spool.
func (e *Exchange) spool() spool {
	return spool{spools: e.archive.spools, client: e.source.Client, spare: e.source.Spare, max: e.options.MaxBody}
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
	// The spool keeps its error, and End returns it.
	of.Write(b[:n])
	if err == io.EOF && of.truncated == "unspecified" {
		of.truncated = ""
	}
	return n, err
}

// Respond hands over the response before its header is changed and its body is read. sent is the request as it was
// sent. from is the address of the connection's other end, and version the connection's version of TLS; 0: none.
// Respond returns nil if the response is not archived.
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
		// Read removes the mark when it reaches the end of the body.
		e.response.body.truncated = "disconnect"
	}
	return e
}

// Read tells e what a read of the response's body has returned. Read returns the error that the reader of the body
// gets in place of err.
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

// Received returns the digest and the length of the body of the response, as far as it was read; zero: it is empty, or too long
// to be archived.
func (e *Exchange) Received() audit.Received {
	of := &e.response.body
	if of.size == 0 || of.truncated == "length" || of.err != nil {
		return audit.Received{}
	}
	return audit.Received{SHA256: of.digest(), Bytes: of.size}
}

// EndsLast reports whether the end of the response must not reach the client before End has returned.
func (e *Exchange) EndsLast() bool { return e != nil && !e.options.Continue }

// Discard ends e without a record.
func (e *Exchange) Discard() {
	if e != nil && e.stop() {
		e.freeBodies()
	}
}

// stop ends the copying of the request's body, and reports whether e had not been ended before.
func (e *Exchange) stop() bool {
	e.uploading.Lock()
	defer e.uploading.Unlock()
	ended := e.closed
	e.closed = true
	return !ended
}

func (e *Exchange) freeBodies() {
	// Nobody needs the bodies any more, nor the errors of their files.
	e.request.body.close()
	e.response.body.close()
}

// End writes the records. about are the fields of the metadata record, as warc.AppendField writes them. It returns
// where the record of the response is. The error wraps ErrUnwritable; with Options.Continue there is none. Later
// calls do nothing.
func (e *Exchange) End(about []byte) (at audit.Archived, err error) {
	if e == nil || e.response.head == nil {
		e.Discard()
		return at, nil
	}
	if !e.stop() {
		return at, nil
	}
	defer e.freeBodies()
	a := e.archive
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
	responseID := warc.NewID()
	records, original, err := e.records(responseID, about)
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
	if e.request.body.file == nil && e.response.body.file == nil {
		at.File, at.Offset, err = e.writeSmall(records, written)
	} else {
		at.File, at.Offset, err = a.files.appendLarge(e.source.Client, e.options, func(out io.Writer) error {
			return encode(out, e.options.Compress, records)
		}, written)
	}
	if err != nil {
		return audit.Archived{}, err
	}
	// The metadata record is the last one, behind that of the response.
	response := records[len(records)-2]
	at.Offset += response.offset
	at.ID = responseID
	a.counts.records.Add(uint64(len(records)))
	if response.body != &e.response.body {
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
func (e *Exchange) writeSmall(records []record, written func(file string)) (file string, offset int64, err error) {
	b := buffers.Get().(*bytes.Buffer)
	defer func() {
		if b.Reset(); b.Cap() <= maxBuffer {
			buffers.Put(b)
		}
	}()
	if err := encode(b, e.options.Compress, records); err != nil {
		return "", 0, err
	}
	files := e.archive.files
	return files.append(&files.small, e.options, func(out io.Writer) error {
		_, err := out.Write(b.Bytes())
		return err
	}, written)
}

// records makes the records of e. original is what the index has to learn; nil: nothing.
func (e *Exchange) records(responseID string, about []byte) (all []record, original *Original, err error) {
	requestID := warc.NewID()
	if !e.ftp {
		request, err := e.requestRecord(requestID, responseID)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, request)
	}
	response, original, err := e.responseRecord(responseID, requestID)
	if err != nil {
		return nil, nil, err
	}
	h := warc.AppendField(e.head(warc.TypeMetadata, warc.NewID()), "WARC-Concurrent-To", responseID)
	metadata, err := finish(h, warc.Fields, &message{head: about}, nil)
	return append(all, response, metadata), original, err
}

// head begins the head of a record.
func (e *Exchange) head(kind, id string) []byte {
	h := warc.AppendType(make([]byte, 0, 1<<10), kind)
	h = warc.AppendField(h, "WARC-Record-ID", id)
	h = warc.AppendField(h, "WARC-Date", warc.FormatTime(e.began))
	return warc.AppendField(h, "WARC-Target-URI", e.target)
}

// fetchedHead begins the head of a record about what the connection has carried.
func (e *Exchange) fetchedHead(kind, id string) []byte {
	h := e.head(kind, id)
	if e.address.IsValid() {
		h = warc.AppendField(h, "WARC-IP-Address", e.address.WithZone("").String())
	}
	for _, p := range e.protocol {
		h = warc.AppendField(h, "WARC-Protocol", p)
	}
	return h
}

// finish completes a record. h begins its head, and m is its block. payload is the digest of the payload; nil: the
// record has none.
func finish(h []byte, content string, m *message, payload *Digest) (record, error) {
	digest, err := m.body.blockDigest(m.head)
	h = warc.AppendField(h, "Content-Type", content)
	h = appendDigest(h, "WARC-Block-Digest", digest)
	if payload != nil {
		h = appendDigest(h, "WARC-Payload-Digest", *payload)
	}
	if m.body.truncated != "" {
		h = warc.AppendField(h, "WARC-Truncated", m.body.truncated)
	}
	return record{head: warc.AppendLength(h, int64(len(m.head))+m.body.size), block: m.head, body: &m.body}, err
}

func (e *Exchange) requestRecord(id, responseID string) (record, error) {
	h := warc.AppendField(e.fetchedHead(warc.TypeRequest, id), "WARC-Concurrent-To", responseID)
	var payload *Digest
	if e.request.body.size > 0 {
		digest := e.request.body.digest()
		payload = &digest
	}
	return finish(h, warc.HTTPRequest, &e.request, payload)
}

// responseRecord returns the response, or a revisit record in its place, or the resource record of a file from an FTP
// server.
func (e *Exchange) responseRecord(id, requestID string) (rec record, original *Original, err error) {
	m := &e.response
	payload := m.body.digest()
	if e.ftp {
		m.head, m.body.block = nil, m.body.payload
		rec, err = finish(e.fetchedHead(warc.TypeResource, id), "application/octet-stream", m, &payload)
		return rec, nil, err
	}
	kind := warc.TypeResponse
	var refers []byte
	if e.options.Dedup && m.body.size > 0 && m.body.truncated == "" {
		// A revisit repeats the URL of the original, which may have a query that must be left out.
		if of, ok := e.archive.index.find(payload); ok && !(e.options.DropQuery && strings.Contains(of.URI, "?")) {
			kind, m, refers = warc.TypeRevisit, &message{head: m.head}, referTo(of)
		} else {
			original = &Original{ID: id, URI: e.target, Date: warc.FormatTime(e.began)}
		}
	}
	h := warc.AppendField(e.fetchedHead(kind, id), "WARC-Concurrent-To", requestID)
	rec, err = finish(append(h, refers...), warc.HTTPResponse, m, &payload)
	return rec, original, err
}

// referTo returns the fields by which a revisit record refers to the record with its payload (ISO 28500 6.7).
func referTo(of Original) []byte {
	h := warc.AppendField(nil, "WARC-Profile", warc.IdenticalPayload)
	h = warc.AppendField(h, "WARC-Refers-To", of.ID)
	h = warc.AppendField(h, "WARC-Refers-To-Target-URI", of.URI)
	return warc.AppendField(h, "WARC-Refers-To-Date", of.Date)
}
