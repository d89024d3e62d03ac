package daemon

import (
	"context"
	"time"
)

const (
	// drainQuiet is how long nothing may come until the drain is over: a balancer that
	// asks every few seconds has found out by then.
	drainQuiet = 5 * time.Second

	drainLook = 100 * time.Millisecond // how often it is looked
)

// drain serves on, as not ready, until the configuration's time for that is over, or
// urged has ended, or nothing comes any more. Each answer is its connection's last.
func (h *Daemon) drain(urged context.Context) {
	most := h.Now.Load().Cfg.Drain
	if most <= 0 {
		return
	}
	h.log.Info("robotsproxy drains; it goes on until its clients are elsewhere, or until the next signal", "at_most", most)
	h.handler.Drain()
	ctx, cancel := context.WithTimeout(urged, most)
	defer cancel()
	look := time.NewTicker(drainLook)
	defer look.Stop()
	requests := h.handler.Stats().Requests
	for quiet := time.Now(); time.Since(quiet) < drainQuiet; {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if now := h.handler.Stats().Requests; now.Open > 0 || now.Ever != requests.Ever {
			requests, quiet = now, time.Now()
		}
	}
}
