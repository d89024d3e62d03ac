package admin

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"robotsproxy/robots/testkit"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// The picture of the dashboard in the documentation.
const (
	pictureFile              = "../../../docs/dashboard.png"
	pictureWide, pictureHigh = 1200, 720      // pixels
	maxPicture               = 150 << 10      // bytes, so that README.md loads quickly
	pictureVariable          = "DOCS_PICTURE" // "write" replaces pictureFile
)

// testPicture checks that the picture in the documentation can still be made, and that the one in
// the repository has the same size. To replace it:
//
//	DOCS_PICTURE=write go test ./cmd/internal/admin -run 'TestDashboard/picture'
func testPicture(t *testing.T, b *browser) {
	w := newBusyProxy(t)
	call(t, b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: spreadSeries})
	b.setColorScheme(t, "light")
	b.do(t, chromedp.EmulateViewport(pictureWide, pictureHigh))
	b.open(t, w.url+"/")
	b.waitFor(t, `document.querySelectorAll('#plot .uplot').length === 2`)
	b.waitFor(t, `document.querySelectorAll('#rows > *').length > 10`)
	made := filepath.Join(t.TempDir(), "dashboard.png")
	b.saveScreenshot(t, made)
	compressPicture(t, made)
	checkPicture(t, made)
	if os.Getenv(pictureVariable) == "write" {
		text, err := os.ReadFile(made)
		testkit.Must(t, err)
		testkit.Must(t, os.WriteFile(pictureFile, text, 0o644))
	}
	checkPicture(t, pictureFile)
}

// spreadSeries is a script that spreads the requests of a new process over the last hour. The sums
// stay those of the rest of the page.
const spreadSeries = `(() => { const real = fetch; window.fetch = async (url, ...more) => {
	const answer = await real(url, ...more);
	if (!String(url).startsWith('/api/v1/series')) return answer;
	const was = await answer.json(), n = 720, is = {start: new Date(Date.now() - n * 5000).toISOString(), step_s: 5};
	['allowed', 'disallowed', 'deferred', 'failed', 'not_enforced'].forEach((name, row) => {
		const sum = was[name].reduce((a, b) => a + b, 0);
		is[name] = new Array(n).fill(0);
		for (let k = 0; k < sum; k++) is[name][Math.floor(n * (((k + 1) * .618034 + row * .13) % 1) ** .8)]++;
	});
	const now = was.waiting.at(-1) ?? 0;
	is.waiting = Array.from({length: n}, (_, i) => i === n - 1 ? now : Math.max(0, Math.round(now * Math.sin(i / 70))));
	return new Response(JSON.stringify(is));
}; })()`

// compressPicture writes a picture again, as small as it can be. Chromium compresses for speed.
func compressPicture(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	picture, err := png.Decode(bytes.NewReader(text))
	testkit.Must(t, err)
	var small bytes.Buffer
	testkit.Must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, picture))
	testkit.Must(t, os.WriteFile(file, small.Bytes(), 0o644))
}

// checkPicture checks the format and the size of a picture.
func checkPicture(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	testkit.Must(t, err)
	defer f.Close()
	info, err := f.Stat()
	testkit.Must(t, err)
	if info.Size() > maxPicture {
		t.Errorf("%s has %d bytes, want at most %d", file, info.Size(), maxPicture)
	}
	format, err := png.DecodeConfig(f)
	testkit.Must(t, err)
	if format.Width != pictureWide || format.Height != pictureHigh {
		t.Errorf("%s is %dx%d, want %dx%d", file, format.Width, format.Height, pictureWide, pictureHigh)
	}
}
