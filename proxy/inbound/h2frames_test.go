package inbound

import (
	"bytes"
	"io"
	"slices"
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

// FuzzHTTP2Heads checks that net/http decodes what the client has sent, or a stand-in. The input is a
// sequence of lengths and field blocks on one connection.
func FuzzHTTP2Heads(f *testing.F) {
	var seed, block bytes.Buffer
	pack := hpack.NewEncoder(&block)
	const begin = ":method=GET :scheme=https :authority=a.test "
	for i, fields := range []string{
		begin + ":path=/a user-agent=x", begin + ":path=/a connection=x-a", begin + ":path=/100% a=b", begin + ":path=/a te=trailers", "te=trailers", begin + ":path=/a te=gzip c=d",
		begin + ":path=/a#b", "transfer-encoding=chunked", "a=b c=d", begin + ":path=//a|b", ":method=CONNECT :authority=a:1", begin + ":path=/" + strings.Repeat("x", 90), begin + begin,
	} {
		block.Reset()
		if i%4 == 3 {
			pack.SetMaxDynamicTableSize(uint32(100 * i))
		}
		for field := range strings.SplitSeq(strings.TrimSpace(fields), " ") {
			name, value, _ := strings.Cut(field, "=")
			pack.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: value == "5"})
		}
		seed.WriteByte(byte(block.Len()))
		seed.Write(block.Bytes())
	}
	f.Add(seed.Bytes())
	f.Add([]byte("\x05\x00\x02te\x00\x04\x40\x02te\x80\x01\xbe\x01\x80\x02\x3f\x80"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var heads http2Heads
		client, server := hpack.NewDecoder(4096, nil), hpack.NewDecoder(4096, nil)
		for len(in) > 1 {
			block := in[1:min(len(in), 1+int(in[0]))]
			in = in[1+len(block):]
			sent, err := client.DecodeFull(block)
			if err != nil {
				return // net/http ends the connection
			}
			trailer := in != nil && len(in)%5 == 4
			rewritten, changed, err := heads.rewrite(block, trailer)
			if err != nil {
				t.Fatalf("%q: %v", sent, err)
			}
			if !changed {
				rewritten = block
			}
			got, err := server.DecodeFull(rewritten)
			if err != nil {
				t.Fatalf("%q is rewritten to %q: %v", sent, rewritten, err)
			}
			if trailer && slices.Equal(got, invalidTrailer) {
				continue
			}
			if slices.ContainsFunc(got, func(f hpack.HeaderField) bool { return f.Name == ":path" && strings.HasPrefix(f.Value, standInMark) }) {
				continue
			}
			same := func(a, b hpack.HeaderField) bool { return a.Name == b.Name && a.Value == b.Value }
			if !slices.EqualFunc(got, sent, same) || connectionSpecific(got) {
				t.Fatalf("%q is given to net/http as %q", sent, got)
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
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: append([]byte("\x82\x87\x84"), bytes.Repeat([]byte("\x00\x01a\x7f\x81\x1e"+strings.Repeat("b", 4000)), 3)...), EndHeaders: true})
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: []byte("\x82")})
		f.WriteData(1, false, []byte("out of order"))
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 7, BlockFragment: []byte("\x82")})
		f.WriteContinuation(9, true, []byte("\x87\x84"))
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

// TestHeadReaderEndsConnections checks the frames that are a connection error (RFC 9113 6.2).
func TestHeadReaderEndsConnections(t *testing.T) {
	for _, c := range []struct {
		flags http2.Flags
		block []byte
	}{{http2.FlagHeadersPadded, nil}, {http2.FlagHeadersPadded, []byte{200, 1}}, {http2.FlagHeadersPriority, []byte{1, 2}}} {
		in := frame(func(f *http2.Framer) { f.WriteRawFrame(http2.FrameHeaders, c.flags, 7, c.block) })
		if got, err := io.ReadAll(&headReader{from: strings.NewReader(in), memory: plenty(t)}); len(got) != 0 || err != errPadding {
			t.Errorf("%v %q: %q, %v", c.flags, c.block, got, err)
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
