package daemon

import (
	"context"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"robotsproxy/policy/explain/humanize"
)

// notify reports the state of the process to systemd (sd_notify(3)), if NOTIFY_SOCKET is set. It ignores errors:
// systemd has its own time limits.
func notify(state string) { daemon.SdNotify(false, state) }

func notifyReady(status string) { notify("READY=1\nSTATUS=" + humanize.Escape(status)) }

func notifyReloading() { notify("RELOADING=1\n" + daemon.SdNotifyMonotonicUsec()) }

func notifyStopping() { notify("STOPPING=1\nSTATUS=shutting down, waiting for requests in flight") }

// notifyWatchdog reports to systemd's watchdog (WATCHDOG_USEC) until ctx ends. It does not report whether the proxy
// is healthy: a restart would not cure a full disk, and breaks off requests in flight.
func notifyWatchdog(ctx context.Context) error {
	every, err := daemon.SdWatchdogEnabled(false)
	if os.Getenv("NOTIFY_SOCKET") == "" || err != nil || every <= 0 {
		return nil
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for {
		notify(daemon.SdNotifyWatchdog)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
