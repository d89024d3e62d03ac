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
