package daemon

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/tdmrep"
	"robotsproxy/robots/testkit"
)

var tdmrepOn = keys{"usage.tdmrep": true}

const siteTDMRep = `[{"location":"/private","tdm-reservation":1}]`

// tdmrepRuling looks an origin up in the cache that the Engine of a daemon has.
func tdmrepRuling(t testing.TB, d *Daemon, site *loopSite) cache.Ruling {
	t.Helper()
	e, err := d.Active.Load().policyCache().Lookup(t.Context(), cache.Query{Origin: site.origin()}, tdmrep.Dialect())
	testkit.Must(t, err)
	return e.Under(tdmrep.Dialect())
}

// tdmrepOf returns what the tdmrep.json of an origin says to a daemon.
func tdmrepOf(t testing.TB, d *Daemon, site *loopSite) string {
	t.Helper()
	if d.Active.Load().policyCache() == nil {
		return "not read"
	}
	r := tdmrepRuling(t, d, site)
	if rule, ok := r.TDMRep.Match("/private"); ok && rule.Reservation == tdmrep.Reserved {
		return "reserved"
	}
	return r.Meaning.String()
}

func (s *loopSite) origin() robots.Origin {
	o, err := robots.ParseOrigin("http", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		panic(err)
	}
	return o
}

// wantTDMRep fails the test unless a daemon knows the file, and the origin has been asked so often.
func (s *standing) wantTDMRep(want string, asked int) {
	s.t.Helper()
	if got, n := tdmrepOf(s.t, s.daemon, s.origin), s.origin.asked(tdmrep.Path); got != want || n != asked {
		s.t.Errorf("%s after %d requests, want %s after %d", got, n, want, asked)
	}
}

// fetchLines returns the lines of the audit about fetches of tdmrep.json.
func (s *standing) fetchLines() (all []trail.Entry) {
	s.t.Helper()
	s.verify(func(line []byte, _ trail.Link) {
		if e, err := trail.Read(line); err == nil && e.Kind == trail.KindTDMRep {
			all = append(all, e)
		}
	})
	return all
}

// verify verifies the audit, and calls each for each line.
func (s *standing) verify(each func([]byte, trail.Link)) {
	s.t.Helper()
	r, err := trail.Open(s.daemon.AuditFile())
	testkit.Must(s.t, err)
	defer r.Close()
	_, err = trail.Verify(r, trail.VerifyOptions{Each: each})
	testkit.Must(s.t, err)
}

// TestTDMRepIsFetchedAsRobotsTxt: once, with the same headers and pace, and with a record.
func TestTDMRepIsFetchedAsRobotsTxt(t *testing.T) {
	t.Parallel()
	s := stand(t, tdmrepOn.with(keys{"identity.from": "a@foo.example", "identity.user_agent": "OurBot/1"}))
	s.origin.setTDMRep(siteTDMRep)
	for range 3 {
		s.wantTDMRep("reserved", 1)
	}
	if n := s.daemon.Pacer.Stats().Hosts; n != 1 {
		t.Errorf("%d hosts were paced", n)
	}
	testkit.Must(t, s.daemon.evidence.Write(&audit.Record{ID: "a-1", Decision: policy.Decision{TDMRep: tdmrepRuling(t, s.daemon, s.origin)}}))
	if r := s.origin.seen[0]; r.UserAgent() != "OurBot/1" || r.Header.Get("From") != "a@foo.example" || r.Header.Get("Accept") != "application/json, */*;q=0.1" {
		t.Errorf("asked with %v", r.Header)
	}
	if got := s.daemon.tdmrepStats(); got.Entries != 1 || got.Hits != 3 || got.Fetches[cache.FetchedRules] != 1 {
		t.Errorf("%+v", got)
	}
	if got := s.daemon.robotsCache.Stats(); got.Entries != 0 {
		t.Errorf("the robots.txt cache has it: %+v", got)
	}
	s.stop()
	lines := s.fetchLines()
	if len(lines) != 1 || lines[0].URL != s.origin.URL+tdmrep.Path || lines[0].SHA256 != "956e0ce4693782d74ed339301433b161f9921378f8e436fb250eaedfa3537a2a" || lines[0].UserAgent != "OurBot/1" || lines[0].FetchOutcome != "rules" {
		t.Errorf("%+v", lines)
	}
	dir := s.daemon.Active.Load().snapshots.Dir
	if text, err := snapshot.Read(dir, lines[0].SHA256); string(text) != siteTDMRep {
		t.Errorf("the snapshot is %q, %v", text, err)
	}
	check := snapshot.NewCheck()
	s.verify(check.Add)
	if got, err := check.Compare(dir); err != nil || got.TDMRep.Unchanged != 1 || got.Fetches != 1 || got.Unknown+got.TDMRep.Missing+len(got.Faults) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestTDMRepThatCannotBeRead: the record has the hash and the error, and the file is not fetched again
// before robots.unreachable_retry.
func TestTDMRepThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := stand(t, tdmrepOn.with(keys{"robots.unreachable_retry": "10m"}))
	s.origin.setTDMRep("[")
	for range 2 {
		s.wantTDMRep("unreachable", 1)
	}
	s.stop()
	lines := s.fetchLines()
	if len(lines) != 1 || lines[0].FetchOutcome != "unreachable" || lines[0].Bytes != 1 || len(lines[0].SHA256) != 64 ||
		!strings.Contains(lines[0].Error, "parse tdmrep.json: unexpected end of JSON input") {
		t.Errorf("%+v", lines)
	}
}

// TestTDMRepIsTurnedOnAndOff: nothing is fetched while usage.tdmrep is false. The cache goes when the last
// request under the configuration that had it has ended.
func TestTDMRepIsTurnedOnAndOff(t *testing.T) {
	t.Parallel()
	s := stand(t, nil)
	s.origin.setTDMRep(siteTDMRep)
	s.get(s.origin.URL+"/page", nil)
	s.wantTDMRep("not read", 0)
	testkit.Must(t, s.reload(tdmrepOn))
	s.wantTDMRep("reserved", 1)
	before := s.daemon.Active.Load().tdmrep
	testkit.Must(t, s.reload(tdmrepOn.with(keys{"robots.max_age": "1h"})))
	s.wantTDMRep("reserved", 1)
	if at := before.Peek(s.origin.origin()).Expires(); time.Until(at) > time.Hour {
		t.Errorf("it expires at %v", at)
	}
	testkit.Must(t, s.reload(tdmrepOn.with(keys{"egress.ports": []string{"1-65535"}}))) // another egress client
	s.wantTDMRep("reserved", 1)
	testkit.Must(t, s.reload(nil))
	s.wantTDMRep("not read", 1)
	testkit.Within(t, "the cache ends", before.ended)
	if _, err := before.Lookup(t.Context(), cache.Query{Origin: s.origin.origin()}, tdmrep.Dialect()); !errors.Is(err, cache.ErrStopped) {
		t.Errorf("the cache is not stopped: %v", err)
	}
	if got := s.daemon.tdmrepStats(); got.Entries != 0 {
		t.Errorf("%+v", got)
	}
	testkit.Must(t, s.reload(tdmrepOn))
	s.wantTDMRep("reserved", 2)
}

// TestOperatorPurgesTDMRep: what an operator removes or fetches again is both files of an origin.
func TestOperatorPurgesTDMRep(t *testing.T) {
	t.Parallel()
	s := stand(t, tdmrepOn)
	s.origin.setTDMRep(siteTDMRep)
	c := operatorCache{s.daemon.robotsCache, func() *tdmrepCache { return s.daemon.Active.Load().tdmrep }}
	s.wantTDMRep("reserved", 1)
	if !c.Purge(s.origin.origin()) || c.Purge(s.origin.origin()) {
		t.Error("Purge does not say that it has removed the tdmrep.json, once")
	}
	s.wantTDMRep("reserved", 2)
	s.origin.setTDMRep("[]")
	e, err := c.Refetch(t.Context(), cache.Query{Origin: s.origin.origin()})
	if err != nil || e.Under(robots.Standard()).Meaning != cache.Rules {
		t.Errorf("Refetch: %v, %+v", err, e)
	}
	s.wantTDMRep("rules", 3)
	if n := s.origin.asked("/robots.txt"); n != 1 {
		t.Errorf("robots.txt was fetched %d times", n)
	}
}

// TestTDMRepOutlivesTheProcess: the next process loads the file from state.db.
func TestTDMRepOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	s := stand(t, tdmrepOn)
	s.origin.setTDMRep(siteTDMRep)
	s.stop()
	cfg, log := s.daemon.Active.Load().Cfg, slog.New(slog.DiscardHandler)
	for range 2 {
		store, err := openStore(cfg, log)
		testkit.Must(t, err)
		s.daemon, err = New(cfg, Resources{store: store}, log)
		testkit.Must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.daemon.Run(ctx, ctx) }()
		s.wantTDMRep("reserved", 1)
		stop()
		testkit.Must(t, <-ended)
	}
}

// TestReplicasFetchTDMRepOnce: one of several replicas fetches the file for all.
func TestReplicasFetchTDMRepOnce(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	fleet := tdmrepOn.with(keys{"store.redis": "redis://" + m.Addr(), "store.replicas": 2})
	one, other := stand(t, fleet), stand(t, fleet)
	other.origin = one.origin
	one.origin.setTDMRep(siteTDMRep)
	for _, s := range []*standing{one, other} {
		testkit.Eventually(t, "it shares the store", func() bool { return !s.daemon.fleet.Stats().StoreAway })
	}
	one.wantTDMRep("reserved", 1)
	testkit.Eventually(t, "the other one loads the file", func() bool { return tdmrepOf(t, other.daemon, one.origin) == "reserved" })
	for _, s := range []*standing{one, other} {
		if n := s.daemon.fleet.RobotsStats().Failures; n > 0 {
			t.Skipf("on a busy machine the server did not answer %d times, so both fetch", n)
		}
	}
	other.wantTDMRep("reserved", 1)
}
