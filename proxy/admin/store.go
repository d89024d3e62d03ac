package admin

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// A Store is how this proxy, one of several replicas, stands to the others, by way of
// what they share.
type Store struct {
	Replica   string    // what this one is called
	Alone     bool      // it paces by itself, since the store is away or was until a moment ago
	Returning bool      // it does still, but the store answers
	Why       string    // Alone: the cause, in a few words
	Since     time.Time // when Alone last began or ended; zero: that is not known
	Times     float64   // how many times slower than permitted this one paces; less than 1 counts as 1
	Members   int       // replicas that were last seen, this one among them
	Expected  int       // replicas that there may be
}

// aloneWords says in a sentence or two that the replicas are not together; "": they are.
func (s *Store) aloneWords() string {
	if !s.Alone {
		return ""
	}
	since := ""
	if !s.Since.IsZero() {
		since = " since " + s.Since.UTC().Format(time.DateTime)
	}
	if s.Returning {
		return fmt.Sprintf("The store that the replicas share answers again: this one paces alone%s, and with the others in a moment.", since)
	}
	return fmt.Sprintf("The store that the replicas share is away: %s. This one paces alone%s, %s.", visible(s.Why), since, s.timesWords())
}

func (s *Store) timesWords() string {
	if s.Times <= 1 {
		return "as fast as is permitted"
	}
	return strconv.FormatFloat(s.Times, 'g', 3, 64) + " times slower than is permitted"
}

// storeStatus is what programs are told.
type storeStatus struct {
	Replica  string  `json:"replica"`
	Shared   bool    `json:"shared"`
	Detail   string  `json:"detail,omitempty"` // why it is not
	Since    string  `json:"since,omitempty"`
	Times    float64 `json:"times_slower"`
	Members  int     `json:"replicas"`
	Expected int     `json:"expected_replicas"`
}

// storeStatus is nil where this proxy is on its own.
func (o *Options) storeStatus() *storeStatus {
	if o.Store == nil {
		return nil
	}
	s := o.Store()
	return &storeStatus{s.Replica, !s.Alone, s.aloneWords(), stamp(s.Since), max(s.Times, 1), s.Members, s.Expected}
}

// alone says that this replica is; "": it is not, or on its own.
func (o *Options) alone() string {
	if o.Store == nil {
		return ""
	}
	s := o.Store()
	return s.aloneWords()
}

// facts is how a replica stands, for the page about it.
func (s *Store) facts(at time.Time) []fact {
	since := "Shared since"
	if s.Alone {
		since = "Alone since"
	}
	all := []fact{
		{Name: "This replica", Value: visible(s.Replica), Code: true},
		{Name: "Replicas", Value: fmt.Sprintf("%d of %d seen", s.Members, s.Expected)},
		{Name: "Pace", Value: s.timesWords()},
		{Name: since, Value: moment(at, s.Since)},
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}

// sharing is whether a replica paces with the others.
func (s *Store) sharing() is {
	if words := s.aloneWords(); words != "" {
		return is{Kind: "wait", Icon: "info", Word: "No", Note: words}
	}
	return is{Kind: "allow", Icon: "allow", Word: "Yes"}
}

// ready answers whether requests are taken: they are while the store is away, which is
// said below.
func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	answer(s.o.Ready)(w, r)
	if words := s.o.alone(); words != "" {
		io.WriteString(w, words+"\n")
	}
}
