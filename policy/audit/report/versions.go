package report

import (
	"cmp"
	"slices"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots/cache"
)

// A robotsVersion is a version of a robots.txt, as fetches have found it.
type robotsVersion struct {
	Host string `json:"host"`
	URL  string `json:"url"`

	// Agent is the product token for which it was fetched (robots.fetch_as: client); "": all clients share the file.
	Agent string `json:"agent,omitempty"`

	// SHA256 is that of the file; "": there was none.
	SHA256 string `json:"sha256"`

	// First and Last are when the first and the last fetch that found this version ended, and Fetches is their number, without those
	// that only records of requests name. Until is
	// when a fetch found another version; zero: none did.
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Fetches int64     `json:"fetches"`
	Until   time.Time `json:"until,omitzero"`

	outdated

	// after is the number of requests that were sent after Last.
	after int64

	file *robotsFile
}

// outdated counts requests that were decided by a version of which a later fetch found another one.
type outdated struct {
	// AfterLast were sent after the last fetch that found their version, and before one found another: the site may have had that
	// one already. AfterNext were sent later: they had been decided before, and waited.
	AfterLast int64 `json:"sent_after_last_fetch"`
	AfterNext int64 `json:"sent_after_next_version"`
}

type fileKey struct{ url, agent string }

// maxVersions bounds the list of versions, and maxFileVersions those of one file. maxVersioned bounds the files.
const (
	maxVersions     = 2_000
	maxFileVersions = 50
	maxVersioned    = 10_000
)

// A robotsFile has the last versions of a robots.txt, the newest at the end.
type robotsFile struct {
	versions []*robotsVersion
	count    int
}

// current returns the newest version; nil: there is none.
func (f *robotsFile) current() *robotsVersion {
	if len(f.versions) == 0 {
		return nil
	}
	return f.versions[len(f.versions)-1]
}

// at returns the version that was the newest at a time; nil: it is not known.
func (f *robotsFile) at(t time.Time) *robotsVersion {
	for _, v := range slices.Backward(f.versions) {
		if !t.Before(v.First) {
			return v
		}
	}
	return nil
}

// A versionBuilder finds the versions of robots.txt.
type versionBuilder struct {
	files groups[fileKey, robotsFile]
	all   list[*robotsVersion]

	// outdated has the sums of the versions, and of those that did not fit into the list.
	outdated
}

func newVersionBuilder() versionBuilder {
	return versionBuilder{files: newGroups[fileKey, robotsFile](maxVersioned), all: list[*robotsVersion]{Most: maxVersions}}
}

// fetch adds a line about a fetch of a robots.txt.
func (b *versionBuilder) fetch(e *trail.Entry) {
	switch cache.FetchOutcome(e.FetchOutcome) {
	case cache.FetchedRules, cache.FetchedNoFile:
	default:
		// It says nothing about the file.
		return
	}
	if !isPlausible(e.Fetched) || e.Fetched.IsZero() {
		return
	}
	f, own := b.files.at(fileKey{clip(e.LastURL()), clip(e.Agent)})
	if !own {
		return
	}
	v := f.current()
	if v == nil || v.SHA256 != clip(e.SHA256) {
		b.begin(f, &robotsVersion{
			Host: e.Host, URL: e.URL, Agent: e.Agent, SHA256: e.SHA256, First: e.Fetched, Last: e.Fetched, Fetches: 1,
		})
		return
	}
	v.Fetches++
	if e.Fetched.After(v.Last) {
		v.Last, v.after = e.Fetched, 0
	}
}

// begin adds a version that a fetch has found.
func (b *versionBuilder) begin(f *robotsFile, v *robotsVersion) {
	if before := f.current(); before != nil {
		before.Until = v.First
		before.AfterLast += before.after
		b.AfterLast += before.after
	}
	f.versions = append(f.versions[max(0, len(f.versions)-maxFileVersions+1):], v)
	b.list(f, v)
}

// earlier returns the version of a record whose fetch another audit has, or a part that is gone. It adds it if the first version that
// is known is another one; nil: there are too many.
func (b *versionBuilder) earlier(f *robotsFile, e *trail.Entry) *robotsVersion {
	switch {
	case len(f.versions) > 0 && f.versions[0].SHA256 == clip(e.RobotsSHA256):
		f.versions[0].First = e.RobotsFetched
		return f.versions[0]
	case len(f.versions) >= maxFileVersions:
		return nil
	}
	v := &robotsVersion{Host: e.Host, URL: e.RobotsURL, SHA256: e.RobotsSHA256, First: e.RobotsFetched, Last: e.RobotsFetched}
	if len(f.versions) > 0 {
		v.Until = f.versions[0].First
	}
	f.versions = slices.Insert(f.versions, 0, v)
	b.list(f, v)
	return v
}

// list adds a version to the list, if the file does not have too many.
func (b *versionBuilder) list(f *robotsFile, v *robotsVersion) {
	v.Host, v.URL, v.Agent, v.SHA256, v.file = clip(v.Host), clip(v.URL), clip(v.Agent), clip(v.SHA256), f
	if f.count++; f.count > maxFileVersions {
		b.all.Others++
		return
	}
	b.all.add(v)
}

// request adds the record of a request that was sent.
func (b *versionBuilder) request(e *trail.Entry) {
	sent, _ := sentAt(e)
	if sent.IsZero() || e.RobotsURL == "" || !isPlausible(e.RobotsFetched) {
		return
	}
	f, own := b.files.rows[fileKey{clip(e.RobotsURL), clip(e.Agent)}], true
	if f == nil {
		f, own = b.files.at(fileKey{clip(e.RobotsURL), ""})
	}
	if !own {
		return
	}
	v := f.at(e.RobotsFetched)
	if v == nil {
		v = b.earlier(f, e)
	}
	switch {
	case v == nil:
	case v.Until.IsZero():
		v.after += oneIf(sent.After(v.Last))
	case sent.After(v.Until):
		v.AfterNext++
		b.AfterNext++
	case sent.After(v.Last):
		v.AfterLast++
		b.AfterLast++
	}
}

// versions returns the versions by file, those of files with several versions first.
func (b *versionBuilder) versions() list[robotsVersion] {
	l := list[robotsVersion]{Most: maxVersions, Others: b.all.Others, Rows: []robotsVersion{}}
	for _, v := range b.all.Rows {
		l.Rows = append(l.Rows, *v)
	}
	slices.SortStableFunc(l.Rows, func(a, b robotsVersion) int {
		return cmp.Or(cmp.Compare(min(b.file.count, 2), min(a.file.count, 2)), cmp.Compare(a.URL, b.URL), cmp.Compare(a.Agent, b.Agent))
	})
	return l
}
