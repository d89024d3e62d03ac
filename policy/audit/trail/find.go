package trail

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// ErrNoRecord is of an ID that no record has.
var ErrNoRecord = errors.New("there is no such record")

// Find gives the record of the request that an ID names, and the line that it is,
// of the trail that is written to path: the newest file is looked through first. What
// cannot be read of a trail does not hide the rest of it; it is said beside
// ErrNoRecord.
func Find(path, id string) (Line, Entry, error) {
	const tries = 3 // a file may be set aside, or compressed, while it is looked for
	var err error
	for range tries {
		var files []Segment
		if files, err = Segments(path); err != nil {
			return Line{}, Entry{}, err
		}
		if len(files) == 0 {
			return Line{}, Entry{}, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
		}
		missed := false
		err = ErrNoRecord
		for _, f := range slices.Backward(files) {
			line, entry, ferr := findIn(f, id)
			switch {
			case ferr == nil:
				return line, entry, nil
			case errors.Is(ferr, fs.ErrNotExist):
				missed = true
			case ferr != io.EOF:
				err = errors.Join(err, ferr)
			}
		}
		if !missed {
			break
		}
	}
	return Line{}, Entry{}, err
}

// findIn is Find in one file; io.EOF: it is not there.
func findIn(f Segment, id string) (Line, Entry, error) {
	value, err := json.Marshal(id)
	if err != nil {
		return Line{}, Entry{}, err
	}
	member := append([]byte(`"id":`), value...)
	r, err := openFile(f)
	if err != nil {
		return Line{}, Entry{}, err
	}
	defer r.Close()
	for {
		line, err := r.Next()
		switch {
		case errors.Is(err, ErrTorn), errors.Is(err, ErrTooLong):
			continue // no record, or not yet
		case err != nil:
			return Line{}, Entry{}, err
		case !bytes.Contains(line.Text, member):
			continue
		}
		entry, err := Read(line.Text)
		if err == nil && entry.ID == id && entry.IsRequest() {
			line.Text = bytes.Clone(line.Text)
			return line, entry, nil
		}
	}
}
