package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// wait makes n checks of a share wait, whose results append to order and refused.
func (q *checkQueue) wait(ctx context.Context, share string, n int, mu *sync.Mutex, order *[]string, refused map[string]int) {
	for range n {
		go func() {
			err := q.take(ctx, share)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				*order = append(*order, share)
			case errors.Is(err, ErrTooManyLogins):
				refused[share]++
			}
		}()
		synctest.Wait()
	}
}

// TestCheckQueue checks in which order checks run, and which of them are refused when too many wait.
func TestCheckQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newCheckQueue(1)
		if err := q.take(t.Context(), "runs"); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		refused := map[string]int{}
		gone, leave := context.WithCancel(t.Context())
		q.wait(t.Context(), "a", 3, &mu, &order, refused)
		q.wait(gone, "left", 2, &mu, &order, refused)
		q.wait(t.Context(), "b", 1, &mu, &order, refused)
		q.wait(t.Context(), "c", 2, &mu, &order, refused)
		leave()
		synctest.Wait()
		for range 6 {
			q.release()
			synctest.Wait()
		}
		if want := []string{"a", "b", "c", "a", "c", "a"}; !slices.Equal(order, want) {
			t.Errorf("they ran in the order %v, want %v", order, want)
		}

		order = nil
		for i := range maxChecks / maxChecksOfShare {
			q.wait(t.Context(), fmt.Sprint("full", i), maxChecksOfShare+1, &mu, &order, refused)
		}
		q.wait(t.Context(), "new", maxChecksOfShare-1, &mu, &order, refused)
		all := 0
		for i := range maxChecks / maxChecksOfShare {
			n := refused[fmt.Sprint("full", i)]
			if all += n; n < 1 {
				t.Errorf("full%d: %d are refused", i, n)
			}
		}
		// Those beyond maxChecksOfShare, and one for each of the new address, until it has almost as many as the others.
		if got := len(q.of["new"]); q.n != maxChecks || got < maxChecksOfShare-8 || all != maxChecks/maxChecksOfShare+got || refused["new"] != maxChecksOfShare-1-got {
			t.Errorf("%d wait, %d of the new address; %v are refused", q.n, got, refused)
		}
		for range maxChecks {
			q.release()
			synctest.Wait()
		}
		if q.release(); len(order) != maxChecks || q.n != 0 || q.free != 1 || len(q.of)+len(q.turns) != 0 {
			t.Errorf("%d ran, and what is left is %+v", len(order), q)
		}
	})
}
