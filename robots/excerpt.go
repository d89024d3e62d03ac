package robots

// A Line is one line of a text as written, without its line end.
type Line struct {
	Number int // from 1
	Text   string
}

// Excerpt returns the lines near one: it, and up to around lines before and after. It also
// returns the User-agent lines of the group that the line is in; none if the line is in no
// group. Excerpt is for explanations.
func Excerpt(text string, d Dialect, line, around int) (near, agents []Line) {
	s := parsed{dialect: d, source: text}
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
