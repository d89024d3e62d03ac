package admin

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/robots/testkit"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A browser is one tab of a real Chromium. Its complaints fail the test.
type browser struct {
	ctx     context.Context
	close   func()
	tallest int64 // greatest height of a screenshot, in pixels

	mu         sync.Mutex // guards complaints
	complaints []string
}

// startChromium starts Chromium until the test ends. It skips the test if Chromium is not
// installed.
func startChromium(t testing.TB) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		testkit.Missing(t, "chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(testkit.Patience),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("no-proxy-server", true), chromedp.Flag("host-resolver-rules", "MAP dashboard.test 127.0.0.1"), chromedp.WindowSize(1280, 900),
	)
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Error(err)
		}
		closeTab()
	})
	check(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	return ctx
}

// openTab opens a tab that shares no connections, storage or focus with other tabs.
func openTab(t testing.TB, chromium context.Context) *browser {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	b := &browser{ctx: ctx, tallest: 1500, close: sync.OnceFunc(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Log(err) // a busy machine takes long to close a tab; Chromium ends with the test
		}
		cancel()
	})}
	t.Cleanup(b.close)
	check(t, chromedp.Listen(ctx, b.onEvent)) // opens the tab
	for _, enable := range []cdp.Command[cdp.Empty, cdp.Empty]{log.Enable, runtime.Enable} {
		_, err := chromedp.Call(ctx, enable, cdp.Empty{})
		check(t, err)
	}
	call(t, b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	return b
}

// onEvent records what a page must not do: violate its policy, raise an error, or open a
// dialog.
func (b *browser) onEvent(event any) {
	complaint := ""
	switch e := event.(type) {
	case *log.EventEntryAdded:
		over := strings.Contains(e.Entry.Text, "Cross-Origin-Opener-Policy header has been ignored") // expected on plain HTTP
		if !over && (e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning) {
			complaint = fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		complaint = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			complaint += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		complaint = "the console is written to: " + string(e.Type)
	case *page.EventJavascriptDialogOpening:
		complaint = "a dialog is opened: " + e.Message
	}
	if complaint != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.complaints = append(b.complaints, complaint)
	}
}

// checkNoComplaints fails the test if the browser has complained since the last call.
func (b *browser) checkNoComplaints(t testing.TB) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		t.Errorf("the browser complains: %s", c)
	}
	b.complaints = nil
}

// do runs actions, each with a timeout.
func (b *browser) do(t testing.TB, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	for i, action := range actions {
		ctx, cancel := context.WithTimeout(b.ctx, testkit.Patience)
		err := chromedp.Do(ctx, action)
		cancel()
		if err != nil {
			t.Fatalf("action %d: %v", i, err)
		}
	}
}

// call sends a command to the browser.
func call[P, R any](t testing.TB, b *browser, c cdp.Command[P, R], params P) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, testkit.Patience)
	defer cancel()
	_, err := chromedp.Call(ctx, c, params)
	check(t, err)
}

// evaluate returns the value of an expression, or what its promise resolves to.
func evaluate[T any](t testing.TB, b *browser, expression string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, testkit.Patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// waitFor waits until an expression is true, even if the page changes meanwhile.
func (b *browser) waitFor(t testing.TB, expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, testkit.Patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		attempt, stop := context.WithTimeout(ctx, testkit.Patience/6) // the page may be gone before it answers
		ok, err := chromedp.Run(attempt, chromedp.Evaluate[bool](expression))
		stop()
		if err == nil && ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.checkNoComplaints(t)
			t.Fatalf("not true within %s: %s", testkit.Patience, expression)
		}
	}
}

// pressKey presses a key as a person does: if the page handles the key, no text is entered.
// chromedp.KeyEvent enters the text in any case.
func (b *browser) pressKey(t testing.TB, key string) {
	t.Helper()
	for _, p := range []input.DispatchKeyEventParams{
		{Type: input.DispatchKeyEventTypeKeyDown, Key: key, Text: key}, {Type: input.DispatchKeyEventTypeKeyUp, Key: key},
	} {
		call(t, b, input.DispatchKeyEvent, p)
	}
}

// checkAppearance checks the open page in light and dark, and its layout in four widths. It saves
// screenshots in the folder named by SCREENSHOTS.
func (b *browser) checkAppearance(t testing.TB, name string) {
	t.Helper()
	for _, look := range []struct {
		scheme string
		width  int64
	}{{"light", 1600}, {"light", 1280}, {"light", 1024}, {"light", 390}, {"dark", 1280}} {
		b.setColorScheme(t, look.scheme)
		b.fitViewport(t, look.width)
		shown := fmt.Sprintf("%s-%s-%d", name, look.scheme, look.width)
		for _, weak := range evaluate[[]string](t, b, lowContrastText) {
			t.Errorf("%s: %s", shown, weak)
		}
		b.checkLayout(t, shown)
	}
	b.do(t, chromedp.EmulateViewport(1280, 900))
}

// fitViewport sets the width of the window, and makes it as high as the page, up to b.tallest.
func (b *browser) fitViewport(t testing.TB, width int64) {
	t.Helper()
	b.do(t, chromedp.EmulateViewport(width, 900))
	b.do(t, chromedp.EmulateViewport(width, min(b.tallest, evaluate[int64](t, b, `document.documentElement.scrollHeight`))))
	evaluate[bool](t, b, `new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => r(true), 60))))`)
}

// checkLayout checks that the open page shows all of its text, and saves a screenshot.
func (b *browser) checkLayout(t testing.TB, name string) {
	t.Helper()
	for _, fault := range evaluate[[]string](t, b, layoutFaults) {
		t.Errorf("%s: %s", name, fault)
	}
	if dir := os.Getenv("SCREENSHOTS"); dir != "" {
		b.saveScreenshot(t, filepath.Join(dir, name+".png"))
	}
}

// savePDF saves the open page as it is printed in the folder named by SCREENSHOTS.
func (b *browser) savePDF(t testing.TB, name string) {
	t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, testkit.Patience)
	defer cancel()
	pdf, err := chromedp.Call(ctx, page.PrintToPDF, page.PrintToPDFParams{PreferCSSPageSize: new(true)})
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, name), pdf.Data, 0o644))
}

// saveScreenshot saves a screenshot of the open page.
func (b *browser) saveScreenshot(t testing.TB, file string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, testkit.Patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	check(t, err)
	check(t, os.MkdirAll(filepath.Dir(file), 0o755))
	check(t, os.WriteFile(file, png, 0o644))
}

// setColorScheme makes the browser prefer light or dark, without motion.
func (b *browser) setColorScheme(t testing.TB, scheme string) { b.emulateMedia(t, "screen", scheme) }

// emulateMedia makes the browser show pages as on a screen or in print, in a colour scheme and
// without motion.
func (b *browser) emulateMedia(t testing.TB, media, scheme string) {
	t.Helper()
	call(t, b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: media, Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// lowContrastText finds text with too little contrast (WCAG 1.4.3: 4.5 to 1, or 3 to 1 for
// large text).
const lowContrastText = `(() => {
	const parse = c => (c.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
	const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * x + .7152 * y + .0722 * z; };
	const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return parse(getComputedStyle(document.documentElement).colorScheme.includes('dark') ? '0 0 0' : '255 255 255'); };
	const weak = new Set();
	for (const e of document.querySelectorAll('body *')) {
		const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
		if (!own || !e.checkVisibility() || e.closest('.hidden, template, svg')) continue;
		const s = getComputedStyle(e), [a, b] = [light(parse(s.color)), light(behind(e))].sort((x, y) => y - x);
		const size = parseFloat(s.fontSize), large = size >= 24 || size >= 18.66 && s.fontWeight >= 700;
		if ((a + .05) / (b + .05) < (large ? 3 : 4.5)) weak.add(e.tagName + '.' + e.className + ': ' + s.color + ' ' + ((a + .05) / (b + .05)).toFixed(2));
	}
	return [...weak];
})()`

// layoutFaults finds text that is cut off or broken, and hosts whose column is too narrow. Where a
// cell shows an ellipsis, the page about the decision has the whole text.
const layoutFaults = `(() => {
	const faults = new Set(), range = document.createRange();
	const say = (e, fault) => faults.add('"' + e.textContent.trim().replace(/\s+/g, ' ').slice(0, 60) + '" ' + fault);
	const over = document.documentElement.scrollWidth - innerWidth, folded = innerWidth < 736;
	if (over > 0) faults.add('the page is ' + over + ' px too wide');
	for (const e of document.querySelectorAll('body *')) {
		if (!e.checkVisibility() || e.closest('.hidden, .sprite, .skip, svg') || folded && e.closest('thead')) continue;
		const style = getComputedStyle(e), boxed = e.closest('td, th, dd, pre, .card, figure') ?? document.body;
		if (style.overflowX !== 'visible' && style.textOverflow !== 'ellipsis' && !e.querySelector('svg.time') && e.scrollWidth > e.clientWidth + 1) say(e, 'is ' + (e.scrollWidth - e.clientWidth) + ' px too wide');
		if (e.matches('tbody th') && e.textContent.includes('.') && e.clientWidth < 110) say(e, 'has only ' + e.clientWidth + ' px');
		for (const text of e.childNodes) {
			if (text.nodeType !== 3 || !text.data.trim()) continue;
			range.selectNodeContents(text);
			if (!e.closest('.what, .why, .who, .agent') && range.getBoundingClientRect().right > boxed.getBoundingClientRect().right + 1) say(e, 'is cut');
			for (const {0: word, index} of text.data.matchAll(/[\p{L}\p{N}]+/gu)) {
				if (word.length > 14 || folded && e.closest('.code, code')) continue;
				range.setStart(text, index);
				range.setEnd(text, index + word.length);
				if (new Set([...range.getClientRects()].map(r => r.top)).size > 1) say(e, 'is broken in ' + word);
			}
		}
	}
	return [...faults];
})()`
