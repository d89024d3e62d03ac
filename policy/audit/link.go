package audit

import "strings"

// maxLicenses is how many licences of a response are recorded.
const maxLicenses = 4

// licenseLinks returns the targets, as written, of the links in Link headers that name a license of the
// response: those with rel=license (RFC 8288; Really Simple Licensing 1.0) and without an anchor, which is
// another resource.
func licenseLinks(lines []string) (targets []string) {
	for _, line := range lines {
		for line != "" && len(targets) < maxLicenses {
			var link string
			link, line = cutQuoted(line, ',')
			target, params, found := strings.Cut(strings.Trim(link, " \t"), ">")
			target, begins := strings.CutPrefix(target, "<")
			if found && begins && isLicense(params) {
				targets = append(targets, target)
			}
		}
	}
	return targets
}

// isLicense reports whether the parameters of a link say that it names a license of the response. Of several
// rel parameters the first counts (RFC 8288 3.3).
func isLicense(params string) bool {
	var license, related bool
	for params != "" {
		var param string
		param, params = cutQuoted(params, ';')
		name, value, _ := strings.Cut(param, "=")
		switch strings.ToLower(strings.Trim(name, " \t")) {
		case "anchor":
			return false
		case "rel":
			for relation := range strings.FieldsSeq(strings.Trim(value, ` "`+"\t")) {
				license = license || !related && strings.EqualFold(relation, "license")
			}
			related = true
		}
	}
	return license
}

// cutQuoted cuts s at the first separator that is neither in a quoted string nor in a URL in angle brackets.
func cutQuoted(s string, separator byte) (before, after string) {
	// within ends the quoted string or URL that the position is in; 0: it is in none.
	var within byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case within == '"' && c == '\\':
			i++
		case within != 0:
			if c == within {
				within = 0
			}
		case c == '"':
			within = '"'
		case c == '<':
			within = '>'
		case c == separator:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}
