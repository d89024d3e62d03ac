package robots

import "strings"

// platforms are the words that identify a browser's comment on its platform.
var platforms = wordSet(`
	windows macintosh x11 linux android iphone ipad ipod cros wayland
	freebsd openbsd netbsd sunos tizen kaios web0s webos playstation nintendo xbox`)

// commonWords are no names of clients: the headers of all browsers have them, and robots send
// them too in order to pass for a browser.
var commonWords = wordSet(`
	mozilla compatible applewebkit khtml like gecko version mobile tablet build wv rv
	chrome chromium crios safari firefox fxios minefield iceweasel seamonkey
	edge edg edga edgios msie iemobile trident opera opr opios presto vivaldi yabrowser
	samsungbrowser ucbrowser miuibrowser silk konqueror epiphany webkit yahoo
	windows nt win32 win64 wow64 x64 x86 x86_64 i386 i586 i686 amd64 arm arm64 aarch64
	macintosh intel ppc mac os darwin x11 linux ubuntu debian fedora android
	iphone ipad ipod cpu cros wayland freebsd openbsd netbsd sunos tizen kaios web0s webos
	playstation nintendo xbox`)

func wordSet(words string) map[string]bool {
	set := make(map[string]bool)
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
}
