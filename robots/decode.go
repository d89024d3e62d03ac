package robots

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
)

// The codings that [Decode] undoes.
const (
	codingGzip    = "gzip"
	codingUTF16LE = "utf-16le"
	codingUTF16BE = "utf-16be"
	// There is a byte order mark of UTF-16 before a text that is not UTF-16.
	codingMark = "utf-16-mark"
)

// Decode returns a robots.txt, or its first [MaxBytes] bytes, as a dialect reads it. A Careful
// dialect undoes gzip, which some servers send without naming it, and UTF-16 with a byte order mark.
// coding names what was undone, such as "gzip" or "gzip+utf-16le"; "": nothing. What is undone has at
// most MaxBytes; of what a limit has cut, only the complete lines are left. The error says that the
// text is gzip that breaks off or is corrupt: the missing lines may be the ones that disallow.
func Decode(text string, d Dialect) (decoded, coding string, err error) {
	if !d.Careful {
		return text, "", nil
	}
	cut := len(text) >= MaxBytes
	if strings.HasPrefix(text, gzipMagic) {
		coding = codingGzip
		if text, cut, err = gunzip(text[:min(len(text), MaxBytes)], cut); err != nil {
			return "", coding, err
		}
	}
	if rest, mark := cutMark(text); mark != "" {
		if text = rest; mark != codingMark {
			text = decodeUTF16(rest, mark)
			cut = cut || len(text) > MaxBytes
			text = text[:min(len(text), MaxBytes)]
		}
		coding = strings.TrimPrefix(coding+"+"+mark, "+")
	}
	if cut && coding != "" {
		text = text[:strings.LastIndexAny(text, "\r\n")+1]
	}
	return text, coding, nil
}

// gzipMagic begins each member of gzip data (RFC 1952 2.3.1).
const gzipMagic = "\x1F\x8B"

// gunzip decompresses at most MaxBytes. With cut, the end of the data is missing, which is no error.
// Text that follows the data is ignored, as gzip itself does. more reports that the end of the text
// is missing.
func gunzip(data string, cut bool) (text string, more bool, err error) {
	var all bytes.Buffer
	source := strings.NewReader(data)
	z, err := gzip.NewReader(source)
	for err == nil && all.Len() < MaxBytes {
		z.Multistream(false)
		if _, err = io.Copy(&all, io.LimitReader(z, int64(MaxBytes-all.Len()))); err != nil || all.Len() == MaxBytes {
			break
		}
		rest := data[len(data)-source.Len():]
		if !strings.HasPrefix(rest, gzipMagic) && !(rest != "" && strings.HasPrefix(gzipMagic, rest)) {
			return all.String(), false, nil
		}
		err = z.Reset(source)
	}
	switch {
	case err == nil:
		return all.String(), true, nil
	case !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF):
		return "", false, fmt.Errorf("the gzip data is corrupt: %w", err)
	case cut:
		return all.String(), true, nil
	}
	return "", false, errors.New("the gzip data is incomplete")
}

// cutMark cuts a byte order mark of UTF-16. What follows is UTF-16 if it has a NUL in its first
// hundred bytes, as the two bytes of every ASCII character have one.
func cutMark(text string) (rest, mark string) {
	switch {
	case strings.HasPrefix(text, "\xFF\xFE"):
		mark = codingUTF16LE
	case strings.HasPrefix(text, "\xFE\xFF"):
		mark = codingUTF16BE
	default:
		return text, ""
	}
	const near = 100
	rest = text[2:]
	if strings.IndexByte(rest[:min(len(rest), near)], 0) < 0 {
		mark = codingMark
	}
	return rest, mark
}

// decodeUTF16 returns UTF-16 as UTF-8. A surrogate without its other half is U+FFFD.
func decodeUTF16(text, coding string) string {
	high, low := 1, 0
	if coding == codingUTF16BE {
		high, low = 0, 1
	}
	units := make([]uint16, len(text)/2)
	for i := range units {
		units[i] = uint16(text[2*i+high])<<8 | uint16(text[2*i+low])
	}
	return string(utf16.Decode(units))
}
