package warc

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"
)

func TestCapture(t *testing.T) {
	t.Parallel()
	const begin = `{"url":"http://a.test/",`
	page := response("page", okHead+"body", "body")
	for _, c := range []struct{ name, record, want string }{
		{"a response", page, `"mime":"text/html","status":"200","digest":"sha256:230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5","length":"LENGTH","offset":"0","filename":"a.warc"}`},
		{"a revisit", revisit("r", "page", "body"), `"mime":"warc/revisit","status":"200","digest":"sha256:230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5","length":"LENGTH","offset":"0","filename":"a.warc"}`},
		{"a resource", text(TypeResource, "r", "body", uri, "Content-Type: Text/Plain; charset=utf-8"), `"mime":"text/plain","length":"LENGTH","offset":"0","filename":"a.warc"}`},
		{"a response without a head", text(TypeResponse, "r", "", uri, isHTTP), `"length":"LENGTH","offset":"0","filename":"a.warc"}`},
		{"a response without a Content-Type", text(TypeResponse, "r", "HTTP/1.1 204\r\n\r\n", uri, isHTTP), `"status":"204","length":"LENGTH","offset":"0","filename":"a.warc"}`},
	} {
		for name, form := range map[string]func(string) string{"": strings.Clone, ", gzip": zip} {
			file := form(c.record)
			r, err := NewReader(strings.NewReader(file))
			testkit.Must(t, err)
			rec, err := r.Next()
			testkit.Must(t, err)
			entry, err := rec.Capture("a.warc")
			testkit.Must(t, err)
			got, err := json.Marshal(entry)
			testkit.Must(t, err)
			want := begin + strings.Replace(c.want, "LENGTH", strconv.Itoa(len(file)), 1)
			if string(got) != want || entry.Key != "test,a)/" || entry.Time.Format("20060102150405") != "20261125100000" || !rec.IsCapture() {
				t.Errorf("%s%s: %s %v %s\nwant %s", c.name, name, entry.Key, entry.Time, got, want)
			}
			if _, err := r.Next(); err != io.EOF {
				t.Errorf("%s%s: %v", c.name, name, err)
			}
		}
	}
}

func TestIsCapture(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]bool{
		"warcinfo application/warc-fields":      false,
		"request application/http":              false,
		"response application/http":             true,
		"revisit ":                              true,
		"resource text/plain":                   true,
		"resource application/warc-fields":      false,
		"metadata Application/warc-fields; a=b": false,
		"metadata text/plain":                   true,
		"conversion text/plain":                 false,
		" ":                                     false,
	} {
		kind, content, _ := strings.Cut(fields, " ")
		if got := (Header{{"warc-type", kind}, {"Content-Type", content}}).IsCapture(); got != want {
			t.Errorf("%s: %v", fields, got)
		}
	}
}
