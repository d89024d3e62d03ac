package archivecmd

import (
	"compress/gzip"
	"io"
	"slices"
	"strings"

	"robotsproxy/proxy/archive/warc"
)

// Extract copies the records with these IDs from the archive in a directory to w, each as a gzip member. If all is set, it also
// copies the requests and the metadata that belong to them. The original of a revisit is another request's: it is left out unless it is
// named, and so are its URL and time.
func Extract(w io.Writer, dir string, ids map[string]bool, all bool) error {
	files, err := filesIn(dir)
	if err != nil {
		return err
	}
	belongs := func(rec *warc.Record) bool {
		return slices.ContainsFunc(rec.All("WARC-Concurrent-To"), func(id string) bool { return ids[id] })
	}
	for _, f := range files {
		for rec, err := range f.records(0) {
			if err == nil && (ids[rec.ID()] || all && belongs(rec)) {
				if !ids[rec.Get("WARC-Refers-To")] {
					rec.Header = slices.DeleteFunc(rec.Header, isAboutOriginal)
				}
				err = copyRecord(w, rec)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// isAboutOriginal reports whether a field is about the original of a revisit.
func isAboutOriginal(f warc.Field) bool {
	return strings.EqualFold(f.Name, "WARC-Refers-To-Target-URI") || strings.EqualFold(f.Name, "WARC-Refers-To-Date")
}

// copyRecord writes a record as a gzip member.
func copyRecord(w io.Writer, rec *warc.Record) error {
	zip := gzip.NewWriter(w)
	_, err := zip.Write(warc.AppendHead(nil, rec.Version, rec.Header))
	if err == nil {
		_, err = io.Copy(zip, rec.Block)
	}
	if err == nil {
		_, err = io.WriteString(zip, warc.End)
	}
	if err == nil {
		err = zip.Close()
	}
	return err
}
