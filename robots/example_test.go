package robots_test

import (
	"fmt"

	"robotsproxy/robots"
)

func Example() {
	file := robots.Parse([]byte("User-agent: FooBot\nDisallow: /private/\nAllow: /private/*.html$\nCrawl-delay: 2\n"), robots.Standard())
	group := file.For(robots.ProductTokens("Mozilla/5.0 (compatible; FooBot/2.1; +https://foo.example)")...)
	fmt.Println(group.Name(), group.CrawlDelay())

	for _, path := range []string{"/private/a?b=c", "/private/a.html", "/"} {
		v := group.Match(path)
		fmt.Printf("%s: %t, %q in line %d\n", path, v.Allow, v.Rule, v.Line)
	}
	// Output:
	// foobot 2s
	// /private/a?b=c: false, "/private/" in line 2
	// /private/a.html: true, "/private/*.html$" in line 3
	// /: true, "" in line 0
}

func ExampleFile_For() {
	file := robots.Parse([]byte("User-agent: *\nDisallow: /\n\nUser-agent: python-requests\nDisallow:\n"), robots.Standard())
	group := file.For("MyBot", "python-requests")
	fmt.Println(group.Name(), group.Token())
	group = file.For("MyBot")
	fmt.Println(group.Name(), group.Token(), group.DisallowsAll())
	// Output:
	// python-requests python-requests
	// * MyBot true
}

func ExampleProductTokens() {
	fmt.Println(robots.ProductTokens("MyBot/1.0 (+https://my.example/bot) python-requests/2.31"))
	fmt.Println(robots.ProductTokens("Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"))
	// Output:
	// [MyBot python-requests]
	// []
}

func ExampleParseOrigin() {
	origin, err := robots.ParseOrigin("https", "B\u00dcCHER.example.:443")
	fmt.Println(origin, origin.Addr(), err)
	fmt.Println(origin.RobotsURL())
	// Output:
	// https://xn--bcher-kva.example xn--bcher-kva.example:443 <nil>
	// https://xn--bcher-kva.example/robots.txt
}

func ExampleDialectByName() {
	text := []byte("User-agent: googlebot\nDisallow: /private\n")
	for _, name := range []string{"google", "google-2019"} {
		dialect, err := robots.DialectByName(name)
		if err != nil {
			fmt.Println(err)
			return
		}
		group := robots.Parse(text, dialect).For("Googlebot-Images")
		fmt.Printf("%s: group %q, allow %t\n", name, group.Name(), group.Match("/private").Allow)
	}
	// Output:
	// google: group "", allow true
	// google-2019: group "googlebot", allow false
}

func ExampleGroup_Match() {
	group := robots.Parse([]byte("User-agent: *\nDisallow: /th\u01b0\nDisallow: /*.gif$\n"), robots.Standard()).For("FooBot")
	for _, url := range []string{"https://foo.example/th%c6%b0/a", "https://foo.example/a.gif", "https://foo.example/a.gif?b#c"} {
		v := group.Match(robots.PathQuery(url))
		fmt.Println(v.Allow, v.Rule, v.Line)
	}
	// Output:
	// false /thư 2
	// false /*.gif$ 3
	// true  0
}

func ExampleFile_Sitemaps() {
	file := robots.Parse([]byte("Sitemap: https://foo.example/sitemap.xml\nUser-agent: *\nContent-Signal: search=yes, ai-train=no\n"+
		"Content-Usage: /blog/ train-ai=n\nAllow: /\n"), robots.Standard())
	group := file.For("FooBot")
	fmt.Println(file.Sitemaps(), group.ContentSignals().AITrain, group.ContentUsage("/blog/1")[0].Text)
	// Output:
	// [https://foo.example/sitemap.xml] no train-ai=n
}

func ExampleLint() {
	text := []byte("Disallow: /\nUser-agent: *\nNoindex: /a\nDisallow: /a\nAllow: /a\n")
	for _, r := range robots.Lint(text, robots.Standard(), robots.Origin{}) {
		fmt.Printf("%d: %s: %s\n", r.Line, r.Fault, r.Text)
	}
	// Output:
	// 1: no-group: applies to no client: no User-agent line precedes it
	// 3: not-read: unknown field "Noindex"
	// 4: never-wins: line 5 always decides instead
}

func ExampleGroup_RelatedRules() {
	text := []byte("User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /a/beta\n")
	for _, r := range robots.Parse(text, robots.Standard()).For("FooBot").RelatedRules("/a/b", 3) {
		fmt.Printf("%+v\n", r)
	}
	// Output:
	// {Allow:false Rule:/a Line:2 Matches:true}
	// {Allow:false Rule:/a/beta Line:4 Matches:false}
}
