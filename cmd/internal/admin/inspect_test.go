package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/html"
)

// inspectPage checks what all pages promise: nothing inline that the policy forbids, no
// injected element or attribute, and labels and headings for accessibility.
func inspectPage(t testing.TB, text string) *html.Node {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(text))
	check(t, err)
	in := pageInspector{t: t, ids: map[string]bool{}, labelled: map[string]bool{}}
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && n.Data == "label" {
			in.labelled[attr(n, "for")] = true
		}
	}
	for n := range doc.Descendants() {
		switch n.Type {
		case html.ElementNode:
			in.checkElement(n)
		case html.TextNode:
			in.checkText("text", n.Data)
		case html.CommentNode:
			t.Errorf("a comment: %.100q", n.Data)
		}
	}
	if in.h1 != 1 {
		t.Errorf("%d first headings", in.h1)
	}
	if !in.main || !in.title {
		t.Error("no main landmark, or no title")
	}
	return doc
}

type pageInspector struct {
	t           testing.TB
	ids         map[string]bool
	labelled    map[string]bool
	heading     int
	h1          int
	main, title bool
}

// allowedElements are all elements that the templates write.
var allowedElements = strings.Fields(`html head meta title link script body svg symbol use pattern circle path rect a img header nav ul li div button span
	main section h1 h2 h3 p dl dt dd figure figcaption details summary table caption thead tbody tfoot tr th td time bdi code small form input label
	select option kbd template footer strong pre ol`)

// linkAttributes are the attributes that have URLs.
var linkAttributes = []string{"href", "src", "action"}

func (in *pageInspector) checkElement(n *html.Node) {
	t := in.t
	if !slices.Contains(allowedElements, n.Data) {
		t.Errorf("a <%.60s>", n.Data)
	}
	for _, a := range n.Attr {
		switch {
		case a.Key == "href" && attr(n, "rel") == "noreferrer" && strings.HasPrefix(a.Val, "https://"):
			// The dashboard of another replica.
		case a.Key == "style" || strings.HasPrefix(a.Key, "on") || a.Key == "srcdoc":
			t.Errorf("<%s %s> is against the policy", n.Data, a.Key)
		case strings.Contains(a.Key, injectedName):
			t.Errorf("<%s> has the attribute %.60q", n.Data, a.Key)
		case slices.Contains(linkAttributes, a.Key) && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#") && !strings.HasPrefix(a.Val, "?"),
			slices.Contains(linkAttributes, a.Key) && strings.HasPrefix(a.Val, "//"):
			t.Errorf("<%s %s=%.60q> leads out", n.Data, a.Key, a.Val)
		case a.Key == "id" && in.ids[a.Val]:
			t.Errorf("two elements are called %q", a.Val)
		case a.Key == "id":
			in.ids[a.Val] = true
		}
		in.checkText(a.Key, a.Val)
	}
	switch n.Data {
	case "script":
		if n.FirstChild != nil || !strings.HasPrefix(attr(n, "src"), "/static/") {
			t.Error("a script that stands in the page, or is nobody's")
		}
	case "style":
		t.Error("a style in the page")
	case "h1", "h2", "h3":
		level := int(n.Data[1] - '0')
		if level > in.heading+1 {
			t.Errorf("a heading of level %d below one of level %d", level, in.heading)
		}
		if in.heading = level; level == 1 {
			in.h1++
		}
	case "main":
		in.main = true
	case "title":
		in.title = in.title || n.FirstChild != nil
	case "img":
		if !has(n, "alt") {
			t.Error("an img without alt")
		}
	case "html":
		if attr(n, "lang") != "en" {
			t.Error("no language")
		}
	default:
		in.checkControl(n)
	}
}

// checkControl checks controls and tables.
func (in *pageInspector) checkControl(n *html.Node) {
	t := in.t
	switch n.Data {
	case "input", "select":
		within := n.Parent != nil && n.Parent.Data == "label"
		if attr(n, "type") != "hidden" && !within && !in.labelled[attr(n, "id")] && !has(n, "aria-label") {
			t.Errorf("<%s name=%s> has no label", n.Data, attr(n, "name"))
		}
	case "button", "a":
		if hidden := has(n, "hidden"); !hidden && has(n, "href") && strings.TrimSpace(textOf(n)) == "" && !inTemplate(n) {
			t.Errorf("<%s %v> has no name", n.Data, n.Attr)
		}
	case "table":
		if first := firstElement(n); first == nil || first.Data != "caption" || textOf(first) == "" {
			t.Error("a table without a caption")
		}
	case "th":
		if attr(n, "scope") == "" {
			t.Error("a th without a scope")
		}
	case "section", "nav", "form":
		if n.Data != "form" && !has(n, "aria-label") && !has(n, "aria-labelledby") {
			t.Errorf("a %s without a name", n.Data)
		}
		if n.Data == "form" && attr(n, "method") == "" {
			t.Error("a form without a method")
		}
	}
}

// checkText fails the test on unprintable characters, such as those that reverse a line or
// move a cursor.
func (in *pageInspector) checkText(where, s string) {
	for _, r := range s {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			in.t.Errorf("%U stands in %s: %.80q", r, where, s)
			return
		}
	}
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, key string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == key })
}

func firstElement(n *html.Node) *html.Node {
	for c := range n.ChildNodes() {
		if c.Type == html.ElementNode {
			return c
		}
	}
	return nil
}

func inTemplate(n *html.Node) bool {
	for p := range n.Ancestors() {
		if p.Data == "template" {
			return true
		}
	}
	return false
}

// textOf returns the text of an element.
func textOf(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}

// findAll returns the elements that have an attribute with a value.
func findAll(doc *html.Node, key, value string) (all []*html.Node) {
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && has(n, key) && attr(n, key) == value {
			all = append(all, n)
		}
	}
	return all
}

// findOne returns the only such element, or fails the test.
func findOne(t testing.TB, doc *html.Node, key, value string) *html.Node {
	t.Helper()
	all := findAll(doc, key, value)
	if len(all) != 1 {
		t.Fatalf("%d elements with %s=%q", len(all), key, value)
	}
	return all[0]
}

const injectedName = "xss-here"

// injections are strings that break out of careless output, by what they try to break out of.
var injections = map[string]string{
	"an element":       `<xss-here><img src=x onerror=alert(1)></xss-here>`,
	"an attribute":     `" xss-here="1" onclick="alert(1)`,
	"a quote":          `' xss-here='1' onmouseover='alert(1)`,
	"the page":         `</td></table></main></template></script><script>alert("xss-here")</script>`,
	"an address":       "javascript:alert('xss-here')",
	"a template":       "{{.Token}} ${alert(1)} xss-here",
	"a line":           "xss-here\u202Egnp.exe\u2066\u2069\u200F\u200B",
	"a terminal":       "xss-here\x00\x1b[31m\r\n\x7f\u0085\u2028",
	"no UTF-8":         "xss-here\xff\xfe\xc0\xaf",
	"an entity":        "xss-here&lt;script&gt;&#x22;&amp;",
	"a long word":      strings.Repeat("xss-here", 1024),
	"a long beginning": "<" + strings.Repeat("a", 8190) + ">",
	"a path":           "../../xss-here/..%2f%2e%2e/;?#",
}

func injectionFiles() (all []string) {
	for name, text := range injections {
		all = append(all, fmt.Sprintf("# %s\nUser-agent: %s\nDisallow: /%s\nAllow: %s\nSitemap: %s\nNoindex: %s\n", name, text, text, text, text, text))
	}
	return all
}
