package pace

import "time"

// Forecast estimates from the rates how long a request of client under l would wait if it
// arrived now. If Wait would refuse the request at once, Forecast returns the error of Wait: a
// *BusyError, ErrLimits or ErrClosed. It changes no state.
func (p *Pacer) Forecast(client string, l Limits) (time.Duration, error) {
	if err := l.check(); err != nil {
		return 0, err
	}
	r := &request{process: &p.process, limits: l, client: client}
	if key := l.backOffKey(); key != l.Key {
		r.backOffHost = p.lockForForecast(key)
		r.backOffHost.mu.Unlock()
	}
	r.host = p.lockForForecast(l.Key)
	defer r.host.mu.Unlock()
	return r.host.forecastNew(r)
}

// lockForForecast returns the host of key, locked. It does not add an unknown host to the
// table.
func (p *Pacer) lockForForecast(key string) *host {
	h := p.hosts.lockKnown(key)
	if h == nil {
		h = p.hosts.newHost()
		h.mu.Lock()
	}
	return h
}

// forecastNew does what ask does, but with copies of the limiters, so that nothing
// changes.
func (h *host) forecastNew(r *request) (time.Duration, error) {
	now, l := r.process.now(), &r.limits
	pages := h.pages
	r.queue = &pages
	switch {
	case !l.asset():
	case h.assets != nil:
		assets := *h.assets
		r.queue = &assets
	default:
		r.queue = &queue{limiter: rateLimiter{presumed: h.pages.limiter.presumed}}
	}
	if l.Client != (Rate{}) && !l.asset() {
		r.own = new(rateLimiter)
		if known := h.clients[r.client]; known != nil {
			*r.own = *known
		}
	}
	r.apply(now)
	if h.startsNow(r, &r.queue.waiting, now) {
		return 0, nil
	}
	if _, err := h.mayWait(r, true, now); err != nil {
		return 0, err
	}
	if r.process.closed.Load() {
		return 0, ErrClosed
	}
	return h.estimate(r, true, now), nil
}
