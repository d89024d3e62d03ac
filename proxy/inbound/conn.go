package inbound

// CountFor counts the connection for a share, that of its client, whose name is now known. It returns false if that share
// has its maximum of connections.
func (c *Conn) CountFor(share string) bool {
	return c.server.conns.move(&c.place, share, c.server.o.Rules().MaxConnsPerClient)
}

// Redirected reports whether a firewall has redirected the connection to the proxy, so that its client does not know of
// the proxy.
func (c *Conn) Redirected() bool { return c.redirect != nil }

// Close closes the connection and frees its place.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.handler.Closed()
		c.memory.End()
		if c.redirect != nil && c.redirect.release != nil {
			c.redirect.release()
		}
		if c.unbudgeted {
			c.server.conns.overMemory.Add(-1)
		}
		c.server.conns.forget(&c.place)
		c.server.counts.conns.End()
	})
	return err
}

// CloseWrite closes the writing direction.
func (c *Conn) CloseWrite() error { return closeWriteOrClose(c.Conn) }
