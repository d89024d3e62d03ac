package audit

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy/audit/trail"
)

// What is written by hand is what the library writes.

func TestTimeAsTheLibraryWritesIt(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		at := time.Unix(rnd.Int64N(250e9)-60e9, rnd.Int64N(1e9)).In(time.FixedZone("", rnd.IntN(7200)))
		if got, want := string(appendTime(nil, at)), at.UTC().Format("2006-01-02T15:04:05.000000000Z"); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

func TestSecondsAsTheLibraryWritesThem(t *testing.T) {
	for _, d := range []time.Duration{0, 1, time.Millisecond, time.Second, 1500 * time.Millisecond, 1e9 * time.Second, 1<<63 - 1} {
		if got, want := string(appendSeconds(nil, d)), strconv.FormatFloat(d.Seconds(), 'f', -1, 64); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
}

// Each byte at each place in and behind eight, with each before it.
func TestPlainPrefixByteByByte(t *testing.T) {
	plain := func(c int) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' }
	for place := range 18 {
		for c := range 256 {
			for _, next := range []string{"", "a", "!", "#", "]", "[", "\x00", "\"", "\x80", "\xff"} {
				s := strings.Repeat("x", place) + string([]byte{byte(c)}) + next + "yyyyyyyyyy"
				want := 0
				for want < len(s) && plain(int(s[want])) {
					want++
				}
				if got := plainPrefix(s); got != want {
					t.Fatalf("%q: got %d, want %d", s, got, want)
				}
			}
		}
	}
}

func TestRecordsAreWrittenWithoutAllocations(t *testing.T) {
	r, o := allowed(), &Options{}
	r.Request.Origin.Port = 8443
	b := appendLine(nil, r, o)
	if n := testing.AllocsPerRun(100, func() { b = appendLine(b[:0], r, o) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestWriteAllocatesNothing: not even where the file is written.
func TestWriteAllocatesNothing(t *testing.T) {
	l, r := open(t, Options{}), allowed()
	write := func() {
		if err := l.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 * batchBytes / 600 { // both buffers have grown
		write()
	}
	if n := testing.AllocsPerRun(2*batchBytes/600, write); n != 0 {
		t.Errorf("%v allocations", n)
	}
	close(t, l)
}

// BenchmarkRecord is a line without the writing of it.
func BenchmarkRecord(b *testing.B) {
	r, o := allowed(), &Options{}
	r.Request.UserAgent = "Mozilla/5.0 (compatible; OtherBot/2.1; +https://other.example)"
	r.Decision.Ruling.Result.SHA256 = strings.Repeat("0123456789abcdef", 4)
	var line []byte
	var hash trail.Hash
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			line = appendLine(line[:0], r, o)
		}
	})
	b.Run("seal", func(b *testing.B) {
		b.ReportAllocs()
		n := len(line)
		for b.Loop() {
			line, hash = trail.AppendLink(line[:n], 0, 123456, hash)
		}
		b.ReportMetric(float64(len(line)), "bytes")
	})
}
