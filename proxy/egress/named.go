package egress

import (
	"fmt"
	"reflect"
)

// Through returns the Client for the upstream proxy of a name in Options.Parents, with the same limits and counts; for "" it
// returns c itself. For an unknown name it returns the zero Client, which refuses everything.
func (c *Client) Through(name string) *Client {
	if name == "" {
		return c
	}
	if named := c.named[name]; named != nil {
		return named
	}
	return new(Client)
}

// setNamed makes the Clients of o.Parents, where o made c. No error contains a password.
func (c *Client) setNamed(o Options) (err error) {
	parents, own := o.Parents, o.Parent
	c.named = make(map[string]*Client, len(parents))
	o.Environment, o.Parents, o.Previous = Environment{}, nil, c
	for name, parent := range parents {
		named := c
		if c.routes != nil || !reflect.DeepEqual(parent, own) {
			o.Parent = parent
			if named, err = New(o); err != nil {
				return fmt.Errorf("%w (%s)", err, name)
			}
		}
		c.named[name] = named
	}
	return nil
}
