package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"robotsproxy/policy/audit"
)

// ReplaceAgents replaces the User-Agent of lines of the index in a directory by what agent returns for them; "": a line stays as
// it is. Nobody may be writing the index. After an error, or if ctx ends, it may have replaced some, and can be called again.
func ReplaceAgents(ctx context.Context, dir string, agent func(f *Fetch) string) error {
	affected := map[string]bool{}
	for f, err := range Index(dir, "") {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if agent(&f) != "" {
			affected[indexPath(dir, f.Saved)] = true
		}
	}
	for path := range affected {
		if err := audit.RewriteLines(ctx, path, false, func(line []byte) []byte { return replaceAgent(line, agent) }); err != nil {
			return fmt.Errorf("write the index: %w", err)
		}
	}
	return nil
}

// replaceAgent returns a line of the index with the User-Agent that agent returns for it. What cannot be parsed stays.
func replaceAgent(line []byte, agent func(f *Fetch) string) []byte {
	var f Fetch
	if json.Unmarshal(line, &f) != nil {
		return line
	}
	if f.UserAgent = agent(&f); f.UserAgent == "" {
		return line
	}
	replaced, err := indexLine(f)
	if err != nil {
		return line
	}
	return bytes.TrimPrefix(replaced, []byte("\n"))
}
