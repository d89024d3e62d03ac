package inbound

import (
	"bytes"
	"cmp"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// http2Heads decodes the heads and trailers of an HTTP/2 connection, in their order. The zero value is
// ready to use.
type http2Heads struct {
	decoder *hpack.Decoder
	// fields are those of the last block, up to maxHead bytes. size is the size of the block in bytes, as
	// RFC 9113 6.5.2 counts it.
	fields []hpack.HeaderField
	size   int

	// encoder encodes heads anew into encoded; nil: net/http gets the blocks as the client has sent them.
	encoder *hpack.Encoder
	encoded bytes.Buffer
}

// tableSize is the size of the dynamic table that net/http offers to clients (RFC 7541 4.2).
const tableSize = 4096

// rewrite returns the block that net/http gets in place of a client's. changed is false if it is the same.
// After an error, which net/http finds too if it still decodes the same blocks, the connection must end.
func (h *http2Heads) rewrite(block []byte, trailer bool) (rewritten []byte, changed bool, err error) {
	if err := h.decode(block); err != nil {
		if h.encoder == nil {
			return nil, false, nil
		}
		return nil, false, err
	}
	fields := h.fields
	if trailer {
		if h.size > maxHead || checkFields(fields, new(pseudoFields)) != nil {
			fields = invalidTrailer
			h.encodeAnew()
		}
	} else if sent, stand := h.sentHead(); stand {
		fields = standInFields(fields, sent)
		h.encodeAnew()
	}
	defer h.release()
	if h.encoder == nil {
		return nil, false, nil
	}
	// A connection that waits keeps no buffer.
	h.encoded = bytes.Buffer{}
	for _, f := range fields {
		if err := h.encoder.WriteField(f); err != nil {
			return nil, false, err
		}
	}
	return h.encoded.Bytes(), true, nil
}

// maxKeptFields is how many fields there is room for between two heads.
const maxKeptFields = 64

// release drops the fields of the last block.
func (h *http2Heads) release() {
	if clear(h.fields); cap(h.fields) > maxKeptFields {
		h.fields = nil
	}
}

// invalidTrailer stands for a malformed trailer. net/http resets its stream with PROTOCOL_ERROR (RFC 9113
// 8.1.1), and the handler gets that for an error of the body.
var invalidTrailer = []hpack.HeaderField{{Name: ":protocol", Value: "-"}}

// decode decodes a block into fields. It drops the fields beyond maxHead.
func (h *http2Heads) decode(block []byte) error {
	if h.decoder == nil {
		h.decoder = hpack.NewDecoder(tableSize, h.add)
	}
	h.fields, h.size = h.fields[:0], 0
	h.decoder.SetEmitEnabled(true)
	if _, err := h.decoder.Write(block); err != nil {
		return err
	}
	return h.decoder.Close()
}

// add adds a field that was decoded.
func (h *http2Heads) add(f hpack.HeaderField) {
	if h.size += int(f.Size()); h.size > maxHead {
		// A block may refer to the same long field many times.
		h.decoder.SetEmitEnabled(false)
		return
	}
	h.fields = append(h.fields, f)
}

// encodeAnew makes the heads that follow be encoded anew. They refer to no dynamic table.
func (h *http2Heads) encodeAnew() {
	if h.encoder == nil {
		h.encoder = hpack.NewEncoder(&h.encoded)
		h.encoder.SetMaxDynamicTableSize(0)
	}
}

// pseudoFields are the pseudo-headers of a request (RFC 9113 8.3.1).
type pseudoFields struct {
	method, scheme, authority, path string
	// host is the field host, which stands for a missing :authority.
	host string
}

// of returns the pseudo-header with a name, or nil.
func (p *pseudoFields) of(name string) *string {
	switch name {
	case ":method":
		return &p.method
	case ":scheme":
		return &p.scheme
	case ":authority":
		return &p.authority
	case ":path":
		return &p.path
	}
	return nil
}

// sentHead returns what the client has sent, and whether net/http must get a stand-in for it.
func (h *http2Heads) sentHead() (sent sentHead, stand bool) {
	var p pseudoFields
	fault := checkFields(h.fields, &p)
	switch {
	case h.size > maxHead:
		fault = errLongHead
	case fault == nil:
		fault = p.check()
	}
	if fault != nil {
		target := p.path
		if p.authority != "" || p.scheme != "" {
			target = p.scheme + "://" + p.authority + p.path
		}
		return sentHead{p.method, target, fault}, true
	}
	return sentHead{p.method, p.path, nil}, p.method != http.MethodConnect && needsStandIn(p.path)
}

// checkFields returns what is wrong with the fields of a head (RFC 9113 8.2, 8.3), and puts its
// pseudo-headers into p.
func checkFields(fields []hpack.HeaderField, p *pseudoFields) *MalformedError {
	var fault *MalformedError
	regular, te := false, false
	for _, f := range fields {
		found := ""
		switch {
		case f.IsPseudo():
			of := p.of(f.Name)
			switch {
			case of == nil:
				found = "it has an unknown pseudo-header"
			case regular:
				found = "it has a pseudo-header after another field"
			case *of != "":
				found = "it has two " + f.Name + " pseudo-headers"
			case f.Value == "":
				found = "its " + f.Name + " pseudo-header is empty"
			case f.Name != ":path" && !httpguts.ValidHeaderFieldValue(f.Value):
				found = "its " + f.Name + " pseudo-header has a byte that no field value has"
			}
			if of != nil && *of == "" {
				*of = f.Value
			}
		case !httpguts.ValidHeaderFieldName(f.Name) || strings.ToLower(f.Name) != f.Name:
			found = "a field name is not a token in lower case"
		case !httpguts.ValidHeaderFieldValue(f.Value):
			found = "the field " + f.Name + " has a byte that no field value has"
		case f.Name == "host":
			p.host = f.Value
		case f.Name == "te":
			if te || f.Value != "" && f.Value != "trailers" {
				found = "the field te may only be trailers, once"
			}
			te = true
		case isOfConnection(f.Name):
			found = "the field " + f.Name + " is not allowed in HTTP/2"
		}
		regular = regular || !f.IsPseudo()
		if fault == nil && found != "" {
			fault = malformed(found)
		}
	}
	return fault
}

// isOfConnection reports whether a field is connection-specific, so that an HTTP/2 request must not have
// it (RFC 9113 8.2.2).
func isOfConnection(name string) bool {
	switch name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return true
	}
	return false
}

// check returns what is wrong with the pseudo-headers of a request (RFC 9113 8.3.1, 8.5).
func (p *pseudoFields) check() *MalformedError {
	switch connect := p.method == http.MethodConnect; {
	case p.method == "":
		return malformed("it has no :method pseudo-header")
	case connect && (p.scheme != "" || p.path != "" || p.authority == ""):
		return malformed("CONNECT must have an :authority pseudo-header, and neither :scheme nor :path")
	case connect:
		return nil
	case p.scheme == "":
		return malformed("it has no :scheme pseudo-header")
	case p.scheme != "http" && p.scheme != "https":
		return malformed("its :scheme pseudo-header is neither http nor https")
	case p.path == "":
		return malformed("it has no :path pseudo-header")
	case strings.Contains(cmp.Or(p.authority, p.host), "@"):
		return malformed("credentials in the URL")
	}
	return nil
}

// standInFields returns the fields of the stand-in for a head. That for a malformed head has only the fields
// that the record and the answer need.
func standInFields(fields []hpack.HeaderField, sent sentHead) []hpack.HeaderField {
	if sent.fault == nil {
		all := append([]hpack.HeaderField(nil), fields...)
		for i := range all {
			if all[i].Name == ":path" {
				all[i].Value = sent.standIn()
			}
		}
		return all
	}
	method := http.MethodGet
	if sent.method == http.MethodHead {
		method = http.MethodHead
	}
	all := []hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: "stand-in.invalid"}, {Name: ":path", Value: sent.standIn()},
	}
	for _, f := range fields {
		if (f.Name == "user-agent" || f.Name == "accept") && httpguts.ValidHeaderFieldValue(f.Value) {
			all = append(all, f)
		}
	}
	return all
}
