package wake

import "testing"

func TestSetTwice(t *testing.T) {
	Signal(nil).Set()
	s := New()
	s.Set()
	s.Set()
	<-s
	select {
	case <-s:
		t.Error("set twice, it wakes twice")
	default:
	}
	s.Set()
	<-s
}
