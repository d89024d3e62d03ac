package proxy

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"robotsproxy/policy/memory"
)

// connectionSpecific reports whether net/http's server refuses the fields of an HTTP/2 head.
func connectionSpecific(fields []hpack.HeaderField) bool {
	te := 0
	for _, f := range fields {
		switch f.Name {
		case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
			return true
		case "te":
			if te++; te > 1 || f.Value != "trailers" && f.Value != "" {
				return true
			}
		}
	}
	return false
}

// FuzzFieldTable compares a fieldTable with a decoder. The input is a sequence of lengths and field
// blocks on one connection.
func FuzzFieldTable(f *testing.F) {
	var seed, block bytes.Buffer
	pack := hpack.NewEncoder(&block)
	for i, fields := range []string{
		":method=GET :scheme=https :path=/a user-agent=x", "connection=x-a", "connection=x-a a=b", "te=trailers", "te=trailers", "te=gzip", "te=gzip c=d",
		"te=", "transfer-encoding=chunked", "a=b c=d", "upgrade=h2c keep-alive=5", "proxy-connection=x te=trailers te=trailers", "x=" + strings.Repeat("x", 90),
	} {
		block.Reset()
		if i%4 == 3 {
			pack.SetMaxDynamicTableSize(uint32(100 * i))
		}
		for field := range strings.SplitSeq(fields, " ") {
			name, value, _ := strings.Cut(field, "=")
			pack.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: value == "5"})
		}
		seed.WriteByte(byte(block.Len()))
		seed.Write(block.Bytes())
	}
	f.Add(seed.Bytes())
	f.Add([]byte("\x05\x00\x02te\x00\x04\x40\x02te\x80\x01\xbe\x01\x80\x02\x3f\x80"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var table fieldTable
		decoder := hpack.NewDecoder(4096, nil)
		for len(in) > 1 {
			block := in[1:min(len(in), 1+int(in[0]))]
			in = in[1+len(block):]
			got := table.forbidden(block)
			fields, err := decoder.DecodeFull(block)
			if err != nil {
				return // net/http ends the connection
			}
			if want := connectionSpecific(fields); got != want {
				t.Fatalf("%v of %q: found %t", fields, block, got)
			}
		}
	})
}

// plenty returns a connection's Work with enough memory.
func plenty(t *testing.T) *memory.Work {
	w, err := memory.New(memory.Options{InUse: func() int64 { return 0 }}).Open("a", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &w
}

// TestHeadReaderChangesNothing checks that accepted bytes pass unchanged, however they arrive.
func TestHeadReaderChangesNothing(t *testing.T) {
	in := frame(func(f *http2.Framer) {
		f.AllowIllegalWrites = true
		f.WriteSettings()
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("\x82\x87\x84"), PadLength: 7})
		f.WriteContinuation(1, true, []byte("\x00\x01a\x01b"))
		f.WriteData(1, true, make([]byte, 2*maxHeld))
		f.WritePing(false, [8]byte{1})
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: bytes.Repeat([]byte("\x00\x01a\x7f\x81\x1e"+strings.Repeat("b", 4000)), 3), EndHeaders: true})
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: []byte("\x82")})
		f.WriteData(1, false, []byte("out of order"))
		f.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersPadded, 7, nil)
		f.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersPadded, 9, []byte{200, 1})
		f.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersPriority, 11, []byte{1, 2})
	})
	for name, from := range map[string]io.Reader{
		"at once": strings.NewReader(in), "byte by byte": iotest.OneByteReader(strings.NewReader(in)), "the end with the last bytes": iotest.DataErrReader(strings.NewReader(in)),
	} {
		got, err := io.ReadAll(&headReader{from: from, memory: plenty(t)})
		if string(got) != in || err != nil {
			t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(in))
		}
	}
}

// TestHeadReaderIsBounded checks that the reader stops at a limit in a head that does not end.
func TestHeadReaderIsBounded(t *testing.T) {
	in := frame(func(f *http2.Framer) {
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("\x82")})
		for range maxBlock / 1000 {
			f.WriteContinuation(1, false, make([]byte, 1000))
		}
	})
	from := strings.NewReader(in)
	if got, err := io.ReadAll(&headReader{from: from, memory: plenty(t)}); len(got) != 0 || err != errLongBlock {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if read := len(in) - from.Len(); read > maxBlock {
		t.Errorf("%d bytes were read", read)
	}
}

// TestFieldTableAllocatesNothing checks that checking the fields of a head allocates no memory.
func TestFieldTableAllocatesNothing(t *testing.T) {
	var block bytes.Buffer
	pack := hpack.NewEncoder(&block)
	for i := range 16 {
		pack.WriteField(hpack.HeaderField{Name: "x-field-" + string(rune('a'+i)), Value: "a value"})
	}
	pack.WriteField(hpack.HeaderField{Name: "te", Value: "trailers"})
	var table fieldTable
	if n := testing.AllocsPerRun(100, func() { table.forbidden(block.Bytes()) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
