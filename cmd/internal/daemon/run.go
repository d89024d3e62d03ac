package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"robotsproxy/cmd/internal/redis"
	"robotsproxy/policy/osfile"
)

// freeDelay is the time from the start until the memory that only the start needed is returned to the system. That takes
// a fifth of the processor time of a start, which a process saves if it ends earlier.
const freeDelay = time.Second

// closeLimit is how long the daemon waits for its files at the end, when no request is in flight any more.
const closeLimit = osfile.MaxSync

// Run serves until ctx ends, waits for the requests in flight until they or urged end, and closes
// everything. If a disk hangs, it leaves open what it cannot close, and returns an error that wraps
// osfile.ErrHangs. It is called once.
func (d *Daemon) Run(ctx, urged context.Context) error {
	idle, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- d.run(ctx, urged, idle) }()
	select {
	case err := <-ended:
		return err
	case <-idle:
	}
	timer := time.NewTimer(closeLimit)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return errors.Join(fmt.Errorf("files left open: %w", osfile.ErrHangs), d.healthy())
	}
}

// run is Run without a limit for files. It closes idle when no request is in flight any more.
func (d *Daemon) run(ctx, urged context.Context, idle chan<- struct{}) (err error) {
	defer func() { err = errors.Join(err, d.close()) }()
	background, stop := context.WithCancel(context.Background())
	defer stop()
	g, failed := errgroup.WithContext(ctx)
	g.Go(func() error { return d.handler.Serve(d.listener) })
	if d.transparent != nil {
		g.Go(func() error { return d.handler.ServeTransparent(d.transparent, d.nameOf) })
	}
	for _, task := range d.backgroundTasks() {
		g.Go(func() error { return task(background) })
	}
	// A reload that replaces it runs its own.
	tdmrep := d.Active.Load().tdmrep
	// sharing ends after the caches have saved their state.
	sharing, part := context.WithCancel(context.Background())
	defer part()
	g.Go(func() error {
		defer part()
		return d.runCaches(background, tdmrep)
	})
	if d.fleet != nil {
		hooks := redis.Hooks{
			Clocks: d.Pacer.Clocks, Recheck: d.Pacer.Recheck, BackOff: d.Pacer.MergeBackOff, Self: d.member, Stops: d.stops,
			Tell: func(ctx context.Context) { d.Active.Load().rules.Engine.TellStore(ctx) },
		}
		g.Go(func() error { return d.fleet.Run(sharing, hooks) })
	}
	if d.paceFile != nil {
		g.Go(func() error { return d.paceFile.Run(sharing, d.Pacer) })
	}
	if d.admin != nil {
		g.Go(func() error { return d.admin.Serve(d.adminListener) })
	}
	if d.monitor != nil {
		g.Go(func() error { return d.monitor.Serve(d.monitorListener) })
	}
	if d.reloader != nil {
		g.Go(func() error { return d.reloader.run(failed, background) })
	}
	g.Go(func() error {
		// ctx has ended, or one of the goroutines above has failed.
		<-failed.Done()
		d.draining.Store(true)
		if d.reloader != nil {
			notifyStopping()
		}
		defer close(idle)
		defer stop()
		if ctx.Err() != nil {
			d.drain(urged)
		}
		d.log.Info("shutting down, waiting up to 20 s for requests in flight")
		return errors.Join(d.handler.Shutdown(urged), d.shutdownAdmin())
	})
	return g.Wait()
}

// backgroundTasks returns what runs, besides the servers and what shares state with other processes, until no request
// is in flight any more.
func (d *Daemon) backgroundTasks() []func(context.Context) error {
	all := []func(context.Context) error{freeMemory, d.evidence.Run, d.snapshots.Run}
	if d.notary != nil {
		all = append(all, d.notary.Run)
	}
	if d.archive != nil {
		all = append(all, d.archive.Run)
	}
	if d.store != nil {
		all = append(all, d.store.Run, d.saveState)
	}
	if d.files != nil {
		all = append(all, d.files.Run)
	}
	if d.feed != nil {
		all = append(all, d.feed.Run)
	}
	if d.reloader != nil {
		all = append(all, d.watchExpiry, notifyWatchdog)
	}
	return all
}

// freeMemory returns the memory that only the start needed to the system. The start has allocated a lot, as for the
// system's roots, and without load no collection runs for minutes.
func freeMemory(ctx context.Context) error {
	select {
	case <-time.After(freeDelay):
		debug.FreeOSMemory()
	case <-ctx.Done():
	}
	return nil
}

// shutdownAdmin shuts the listeners for operators down.
func (d *Daemon) shutdownAdmin() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if d.admin != nil {
		err = d.admin.Shutdown(ctx)
	}
	if d.monitor != nil {
		err = errors.Join(err, d.monitor.Shutdown(ctx))
	}
	return err
}

// runCaches runs the caches that New has made until ctx ends; tdmrep is nil if tdmrep.json files are not read.
func (d *Daemon) runCaches(ctx context.Context, tdmrep *tdmrepCache) error {
	var g errgroup.Group
	g.Go(func() error { return d.robotsCache.Run(ctx) })
	if tdmrep != nil {
		g.Go(func() error { return tdmrep.run(ctx) })
	}
	return g.Wait()
}

// close closes what New has made. The store is last, since it remembers the last requests and the end of the audit.
func (d *Daemon) close() (err error) {
	for _, l := range []net.Listener{d.listener, d.transparent, d.adminListener, d.monitorListener} {
		if l != nil {
			// Close returns an error if Run has closed the listener.
			l.Close()
		}
	}
	if now := d.Active.Load(); now != nil {
		now.rules.Egress.Close()
	}
	if d.fleet != nil {
		// Nobody is left who could act on an error.
		d.fleet.Close()
	}
	if d.paceFile != nil {
		// The file has logged any error.
		d.paceFile.Close()
	}
	if d.evidence != nil {
		err = d.evidence.Close()
	}
	if d.notary != nil {
		d.notary.Finish()
	}
	err = errors.Join(err, d.closeArchive())
	if d.files != nil {
		d.files.Close()
	}
	if d.store != nil {
		if d.Pacer != nil {
			d.store.SaveClocks(d.Pacer.Clocks(time.Now(), time.Time{}))
		}
		if d.evidence != nil {
			d.saveAuditEnd()
		}
		if d.Active.Load() != nil {
			d.saveUses()
		}
		if d.stops != nil {
			// The store has logged why it cannot be written.
			_ = d.saveStops()
		}
		d.store.Close()
	}
	return err
}

const (
	// drainQuiet is how long no request arrives before a drain ends: a balancer that checks every
	// few seconds has noticed by then.
	drainQuiet = 5 * time.Second

	// drainLook is how often drain checks.
	drainLook = 100 * time.Millisecond
)

// drain continues to serve, as not ready, until the configured time, until urged ends, or until no
// requests arrive. Each response closes its connection.
func (d *Daemon) drain(urged context.Context) {
	most := d.Active.Load().Cfg.Drain
	if most <= 0 {
		return
	}
	d.log.Info("draining, serving until no request arrives or the next signal", "at_most", most)
	d.handler.Drain()
	ctx, cancel := context.WithTimeout(urged, most)
	defer cancel()
	look := time.NewTicker(drainLook)
	defer look.Stop()
	requests := d.handler.Stats().Requests
	for quiet := time.Now(); time.Since(quiet) < drainQuiet; {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if now := d.handler.Stats().Requests; now.Open > 0 || now.Total != requests.Total {
			requests, quiet = now, time.Now()
		}
	}
}
