package robots

// A Line is one line of a text, without its end and as it is written.
type Line struct {
	Number int // from 1
	Text   string
}

// Excerpt gives the lines that stand around one, so many before and after it, and
// the User-agent lines of the group that it stands in; none where it stands in no
// group. It is for explanations.
func Excerpt(text string, d Dialect, line, around int) (near, agents []Line) {
	s := statements{dialect: d, source: text}
	for number, content := range lines(text) {
		if number > line+around {
			break
		}
		if number >= line-around {
			near = append(near, Line{number, content})
		}
		f, value := splitLine(content, d.Misspellings)
		if number > line || f == fieldNone {
			continue
		}
		group := s.blocks
		if s.add(f, value, number); s.blocks != group {
			agents = nil
		}
		if f == fieldUserAgent {
			agents = append(agents, Line{number, content})
		}
	}
	return near, agents
}
