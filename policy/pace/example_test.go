package pace_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"robotsproxy/policy/pace"
)

func Example() {
	p := pace.New(pace.Options{})
	limits := pace.Limits{
		Key:       "example.com",
		PerSecond: 1, Burst: 1, CrawlDelay: 10 * time.Second,
		MaxConcurrent: 2, MaxWait: 5 * time.Second, MaxQueue: 500,
	}
	for range 2 {
		slot, err := p.Wait(context.Background(), "lab-a", limits)
		if busy := (*pace.BusyError)(nil); errors.As(err, &busy) {
			fmt.Printf("not now: %v, in %v\n", busy.Reason, busy.RetryAfter.Round(time.Second))
			continue
		}
		defer slot.Release()                                     // when the body is complete
		if err := slot.Ready(context.Background()); err != nil { // when the connection is ready
			fmt.Println(err)
			continue
		}
		slot.Sent() // when the request is written
		fmt.Println("sent")
	}
	// Output:
	// sent
	// not now: the wait is too long, in 10s
}
