package proxy

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// upgrade answers 101 and joins the two connections until both halves have
// ended. Its place was one of a page; it gives that back and falls under the
// ceiling of its own.
func (h *Handler) upgrade(x *exchange) error {
	resp := x.upgraded
	origin, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return fmt.Errorf("upgrade: %T cannot be written to", resp.Body)
	}
	defer origin.Close()
	protocol := resp.Header.Get("Upgrade")
	h.incoming(resp.StatusCode, resp.Header)
	resp.Header["Connection"], resp.Header["Upgrade"] = []string{"Upgrade"}, []string{protocol}
	if err := x.detach(); err != nil {
		return err
	}
	conn, buffered, err := x.hijack()
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	defer conn.Close()
	if !h.conns.add(conn) {
		return http.ErrServerClosed
	}
	defer h.conns.remove(conn)
	h.counts.upgraded.begin()
	defer h.counts.upgraded.end()
	x.record.Status = resp.StatusCode
	resp.Body = nil
	err = conn.SetWriteDeadline(time.Now().Add(h.o.Silence))
	if err == nil {
		err = resp.Write(conn)
	}
	if err == nil {
		err = conn.SetWriteDeadline(time.Time{}) // from here on the relay's watch ends what stands still
	}
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	x.record.Bytes, err = relay(bare(conn), buffered, origin, false, h.o.Silence)
	return err
}
