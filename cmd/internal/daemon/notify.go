package daemon

import (
	"context"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"robotsproxy/policy/explain/humanize"
)

// A notifier tells systemd how the process is at (sd_notify(3)), where that has asked
// for it by NOTIFY_SOCKET; else, and as its zero value, it says nothing.
type notifier struct {
	on bool
}

func newNotifier() notifier { return notifier{on: os.Getenv("NOTIFY_SOCKET") != ""} }

// say is best effort: whoever does not hear it finds out.
func (h notifier) say(state string) {
	if h.on {
		daemon.SdNotify(false, state)
	}
}

func (h notifier) ready(status string) { h.say("READY=1\nSTATUS=" + humanize.Escape(status)) }

func (h notifier) reloading() { h.say("RELOADING=1\n" + daemon.SdNotifyMonotonicUsec()) }

func (h notifier) stopping() { h.say("STOPPING=1\nSTATUS=requests in flight finish") }

// guard has the watchdog know that the process runs, until ctx ends, where systemd has
// one for it (WATCHDOG_USEC). Whether it is well is not asked: to be started anew cures
// no full disk, and breaks off what is under way.
func (h notifier) guard(ctx context.Context) error {
	every, err := daemon.SdWatchdogEnabled(false)
	if !h.on || err != nil || every <= 0 {
		return nil
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for {
		h.say(daemon.SdNotifyWatchdog)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
