package admin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/explain/humanize"
)

//go:embed templates assets
var files embed.FS

// ui returns the templates and assets of the pages. They are parsed at the first call, since
// many proxies never serve a page.
var ui = sync.OnceValue(loadUI)

type uiFiles struct {
	// templates has the pages by file name without .html.
	templates map[string]*template.Template

	// assets has the files by the path below /static/.
	assets map[string]asset
}

// An asset is a file that pages load. Its URL contains its version.
type asset struct {
	body      []byte
	mediaType string
	version   string
}

// mediaTypes maps a file name extension to the media type of the asset.
var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", "": "text/plain; charset=utf-8",
}

func loadUI() *uiFiles {
	u := &uiFiles{templates: make(map[string]*template.Template), assets: make(map[string]asset)}
	err := fs.WalkDir(files, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := files.ReadFile(name)
		sum := sha256.Sum256(body)
		u.assets[strings.TrimPrefix(name, "assets/")] = asset{body, mediaTypes[path.Ext(name)], hex.EncodeToString(sum[:6])}
		return err
	})
	if err != nil {
		// Only a broken binary can cause an error.
		panic(err)
	}
	base := template.New("").Funcs(template.FuncMap{
		"asset": u.assetURL, "fact": newFact, "code": newCode, "class": func(c live.Class) badge { return classBadges[c] },
		"count": humanize.Number, "bytes": humanize.Bytes[int64], "printable": printable,
		"clip":    func(s string) string { return clipPrintable(s, maxCell) },
		"overdue": overdue, "age": func(t time.Time) string { return timeWithAge(time.Now(), t) },
	})
	template.Must(base.ParseFS(files, "templates/frame.html", "templates/parts.html", "templates/login.html"))
	u.templates["login"] = template.Must(base.Clone())
	for _, name := range []string{"overview", "decision", "hosts", "host", "exceptions", "clients", "explain", "about", "config"} {
		u.templates[name] = template.Must(template.Must(base.Clone()).ParseFS(files, "templates/"+name+".html"))
	}
	return u
}

// assetURL returns the URL of an asset. It panics if there is none of that name.
func (u *uiFiles) assetURL(name string) string {
	a, ok := u.assets[name]
	if !ok {
		panic("no asset is named " + name)
	}
	return "/static/" + name + "?v=" + a.version
}

// serveAsset serves a file below /static/. Browsers may keep it if the URL has its current
// version.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := ui().assets[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", a.mediaType)
	if r.URL.RawQuery == "v="+a.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Write(a.body)
}
