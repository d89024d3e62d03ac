package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// maxOriginTexts bounds the origins of a host whose files are shown.
const maxOriginTexts = 8

// A hostView is the page of one host.
type hostView struct {
	frame
	Host  string
	Known bool

	// Decisions is the URL of its decisions.
	Decisions string
	Explain   string

	// Action is the URL of the page's forms.
	Action  string
	Figures []figure

	// Pause is that of the host alone; nil: there is none.
	Pause *pauseView

	// Entries are the entries of hosts that apply to it.
	Entries  []entryRow
	Budgets  []budgetRow
	BackOffs []backOffRow
	Causes   []causeView
	Origins  []originView
}

// An originView is one origin on the page of its host.
type originView struct {
	ID     string
	Origin string

	// Token is the product token of the file, as the cache has it.
	Token string
	Badge badge
	Facts factList

	// NoFileText says why no lines are shown.
	NoFileText string
	Remarks    []robots.Remark
	fileListing
}

// A backOffRow is a back-off of the host or of one client there.
type backOffRow struct {
	// Client is "" if the back-off is for all clients.
	Client string
	Left   string

	// By is as paceState.BackOffBy.
	By string

	// Statuses are those by which the host has refused requests in a row; "": it is a back-off.
	Statuses string
}

// backOffRows returns the back-offs of a host, that of all clients first, and then its cool-downs.
func (s *Server) backOffRows(h *hostState, now time.Time) (rows []backOffRow) {
	add := func(client string, until time.Time, by, statuses string) {
		if until.After(now) {
			left := humanize.Duration(until.Sub(now))
			rows = append(rows, backOffRow{clipPrintable(client, maxCell), left, clipPrintable(by, maxCell), statuses})
		}
	}
	p := h.paceOrZero()
	add("", p.PausedUntil, p.BackOffBy, "")
	for _, c := range s.opts.clientBackOffs(h.Host) {
		add(c.Client, c.PausedUntil, c.BackOffBy, "")
	}
	for _, c := range s.opts.coolDowns(h.Host) {
		add(c.Client, c.Until, "", strings.Trim(fmt.Sprint(c.Statuses), "[]"))
	}
	return rows
}

func (s *Server) showHost(w http.ResponseWriter, r *http.Request) {
	name, now := r.PathValue("host"), nowUTC()
	h, known := s.opts.host(name)
	v := hostView{
		frame: s.newFrame(clipPrintable(name, maxCell), "/hosts"), Host: clipPrintable(name, maxCell), Known: known,
		Decisions: decisionsHref("host", name), Explain: explainHref(explainRequest{URL: "https://" + name + "/"}), Action: hostHref(name),
	}
	v.Flash, v.Pause = doneFlashes[r.URL.Query().Get("done")], s.pauseView(name, now)
	status := http.StatusOK
	if !known && v.Flash == nil {
		status = http.StatusNotFound
	}
	v.Figures = s.hostFigures(&h, now)
	v.Entries = s.entryRows(s.opts.Engine().EntriesFor(name), now)
	v.Budgets = s.budgetRows(name, now)
	v.BackOffs = s.backOffRows(&h, now)
	causes := s.opts.Live.Causes(name)
	from, _ := strconv.Atoi(r.URL.Query().Get("from"))
	for i := range h.Origins {
		v.Origins = append(v.Origins, s.newOriginView(&h.Origins[i], i, from, causes, now))
	}
	for _, c := range causes {
		view := newCauseView(c, now)
		view.Href = causeHref(v.Origins, h.Origins, &c)
		v.Causes = append(v.Causes, view)
	}
	s.render(w, status, "host", "frame", v)
}

// causeHref returns the link to the line of a cause, or "" if its file is not on the page.
func causeHref(views []originView, origins []originState, c *live.Cause) string {
	for i := range views {
		if c.Line > 0 && views[i].last > 0 && live.Clip(origins[i].URL) == c.Robots {
			return views[i].lineHref(c.Line)
		}
	}
	return ""
}

func (s *Server) hostFigures(h *hostState, now time.Time) []figure {
	state := stateBadge(h, now)
	figures := classFigures(&h.counts, shownClasses(&h.counts, s.opts.Monitor()), "host", h.Host)
	figures[0].Note = "last request " + cmp.Or(timeAgo(now, h.Last), "not known")
	queue := figure{
		Name: "Queue", Value: humanize.Number(h.paceOrZero().Queue), Kind: "wait", Icon: "wait",
		Note: "all requests together waited " + humanize.Duration(secondsDuration(h.WaitedS)),
	}
	p := h.Pace
	if p != nil {
		queue.Note = fmt.Sprintf("%s in flight; %s", humanize.Number(p.UnderWay), queue.Note)
	}
	figures = append(figures, queue, figure{
		Name: "State", Value: state.Word, Note: state.Note, Icon: state.Icon, Kind: state.Kind, Words: true,
	})
	if p == nil {
		return figures
	}
	gap := figure{
		Name: "Delay", Value: cmp.Or(positiveDuration(secondsDuration(p.GapS)), "none"),
		Note: "last sent " + cmp.Or(timeAgo(now, p.Sent), "not known"), Words: true,
	}
	if h.asked > h.paced {
		gap.Note = "the host " + explain.Shortened(h.asked, h.paced) + "; " + gap.Note
	}
	next := figure{Name: "Next slot", Value: h.nextSlotText(now), Note: "for a request that arrives now", Words: true}
	return append(figures, gap, next)
}

// newOriginView shows the i-th origin of a host. The listing of its file begins at line from.
func (s *Server) newOriginView(o *originState, i, from int, causes []live.Cause, now time.Time) originView {
	x := explain.OfRuling(&o.ruling, s.opts.Dialect().Name)
	v := originView{
		ID: "o" + strconv.Itoa(i+1), Origin: printable(o.Origin), Token: o.token, Badge: fileBadge(o),
		NoFileText: noFileText(o, &x), Facts: originFacts(o, &x, now),
	}
	if o.ruling.Meaning != cache.Rules || i >= maxOriginTexts {
		return v
	}
	text := string(o.ruling.Result.Body)
	v.fileListing = newFileListing(text, s.opts.Dialect(), linePrefix(i), from, countByLine(causes, o.URL))
	if decoded, _, _ := robots.Decode(text, s.opts.Dialect()); len(decoded) <= maxLintBytes {
		for _, remark := range robots.Lint([]byte(text), s.opts.Dialect(), o.origin) {
			remark.Text = clipPrintable(remark.Text, maxCell)
			v.Remarks = append(v.Remarks, remark)
		}
	}
	return v
}

// linePrefix returns the prefix of the line anchors of the i-th origin's file.
func linePrefix(i int) string {
	if i == 0 {
		return "L"
	}
	return "o" + strconv.Itoa(i+1) + "L"
}

// ruleHref returns the link to a line of an origin's file on the page of its host.
func (s *Server) ruleHref(o robots.Origin, line int) string {
	h, _ := s.opts.host(o.Host)
	i := slices.IndexFunc(h.Origins, func(s originState) bool { return s.origin == o })
	if i < 0 || line == 0 {
		return hostHref(o.Host)
	}
	return hostHref(o.Host) + (&fileListing{prefix: linePrefix(i), from: 1}).lineHref(line)
}

// maxLintBytes is the size up to which a file is checked for likely mistakes.
const maxLintBytes = 64 << 10

// noFileText says why no file is shown, and what that means for requests.
func noFileText(o *originState, x *explain.Explanation) string {
	switch {
	case o.ruling.Meaning != cache.Rules:
		return x.Sentence()
	case o.Bytes == 0:
		return "The file is empty: everything is allowed."
	}
	return "This file is not shown, because the host has too many files."
}

func originFacts(o *originState, x *explain.Explanation, now time.Time) factList {
	all := newFacts(x.Basis())
	if o.ruling.Meaning == cache.Rules {
		all.add("Size", fmt.Sprintf("%s, %s", humanize.Bytes(o.Bytes), rulesText(o)))
	}
	all.add("Age", timeAgo(now, o.Fetched))
	all.add("Next fetch", nextFetchText(now, o.Expires))
	all.add("Next attempt", nextFetchText(now, o.Retry))
	all.add("Error", humanize.Prose(o.Error))
	return all
}

// nextFetchText says when a fetch is due. A fetch that is due waits for the next request.
func nextFetchText(now, t time.Time) string {
	if !t.IsZero() && !t.After(now) {
		return "with the next request"
	}
	return timeUntil(now, t)
}

// doneFlashes are the messages for the outcomes of the forms, by the parameter of the redirect after a form.
var doneFlashes = map[string]*flash{
	"refetch":     successFlash("robots.txt was fetched. The result is below."),
	"purge":       successFlash("robots.txt was removed from the cache. The next request waits for a fetch."),
	"back-off":    successFlash("The back-off has ended. Waiting requests are sent at the host's pace."),
	"no-back-off": successFlash("The host has no back-off."),
	"unrecorded":  errorFlash(unrecordedEnd),
	"paused":      successFlash("Requests are paused. Those that are under way may finish."),
	"resumed":     successFlash("The pause has ended. Requests are sent at the host's pace."),
	"no-pause":    successFlash("There is no pause to end."),
	"bad-pause":   errorFlash("A pause needs a reason in one line. Its end is a time or a duration in the future, such as 2h, or empty."),
	"many-pauses": errorFlash("There are too many pauses. End some of them."),
	"pause-lost":  errorFlash(pauseNotKept),
	"end-lost":    errorFlash(endNotKept),
	"nothing":     successFlash("The cache has no robots.txt of this origin."),
	"failed":      errorFlash("The fetch gave no usable robots.txt. The file that applies is below."),
	"busy":        errorFlash("Too many requests wait for fetches. Try again in a moment."),
	"late":        errorFlash(waitTimedOut.Detail),
}

// changeOrigin handles the buttons of a host's page, and redirects to the page.
func (s *Server) changeOrigin(w http.ResponseWriter, r *http.Request) {
	if !s.parseForm(w, r) {
		return
	}
	switch r.PostForm.Get("do") {
	case "end-back-off":
		s.endBackOffByForm(w, r)
		return
	case "pause", "resume":
		s.changePause(w, r)
		return
	}
	o, err := parseOrigin(r.PostForm.Get("origin"))
	if err != nil || o.Host != r.PathValue("host") {
		s.refuse(w, r, http.StatusBadRequest, "The form names no origin of this host.")
		return
	}
	s.opts.Log.Info("robots.txt changed by the operator", "origin", o.String(), "do", clipInput(r.PostForm.Get("do")))
	done := ""
	switch r.PostForm.Get("do") {
	case "refetch":
		done = s.refetchAndWait(w, r, cache.Query{Origin: o, Token: r.PostForm.Get("token")})
	case "purge":
		if done = "nothing"; s.opts.Cache.Purge(o) {
			done = "purge"
		}
	default:
		s.refuse(w, r, http.StatusBadRequest, "The form names no action of this page.")
		return
	}
	http.Redirect(w, r, hostHref(o.Host)+"?done="+done, http.StatusSeeOther)
}

// endBackOffByForm handles the button that ends the back-off of the host.
func (s *Server) endBackOffByForm(w http.ResponseWriter, r *http.Request) {
	host, err := robots.ParseHost(r.PathValue("host"))
	if err != nil {
		s.refuse(w, r, http.StatusBadRequest, badHost)
		return
	}
	done := "no-back-off"
	if ended, err := s.endBackOff(host); err != nil {
		done = "unrecorded"
	} else if ended {
		done = "back-off"
	}
	http.Redirect(w, r, hostHref(host)+"?done="+done, http.StatusSeeOther)
}

func (s *Server) refetchAndWait(w http.ResponseWriter, r *http.Request, q cache.Query) string {
	done := "refetch"
	switch s.waitForOrigin(w, r, func(ctx context.Context) {
		if e, err := s.opts.Cache.Refetch(ctx, q); err != nil || s.opts.rulings()(e).Err != nil {
			done = "failed"
		}
	}) {
	case tooManyWaits:
		return "busy"
	case waitTimedOut:
		return "late"
	}
	return done
}
