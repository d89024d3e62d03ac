package usage

// A Mapping says what a term of a vocabulary means for one Category.
type Mapping struct {
	Field      string
	Term       string
	Category   Category
	Preference Preference

	// Source is the clause that says so.
	Source string
}

// Mappings are all terms that count. Any other term says nothing. The table is of 25 November 2026.
var Mappings = [...]Mapping{
	{usageField, "train-ai=y", TrainAI, Allowed, "draft-ietf-aipref-vocab, AI Model Training"},
	{usageField, "train-ai=n", TrainAI, Disallowed, "draft-ietf-aipref-vocab, AI Model Training"},
	{usageField, "search=y", Search, Allowed, "draft-ietf-aipref-vocab, Search"},
	{usageField, "search=n", Search, Disallowed, "draft-ietf-aipref-vocab, Search"},
	{signalField, "ai-train=yes", TrainAI, Allowed, "contentsignals.org, ai-train"},
	{signalField, "ai-train=no", TrainAI, Disallowed, "contentsignals.org, ai-train"},
	{signalField, "ai-input=yes", AIInput, Allowed, "contentsignals.org, ai-input"},
	{signalField, "ai-input=no", AIInput, Disallowed, "contentsignals.org, ai-input"},
	{signalField, "search=yes", Search, Allowed, "contentsignals.org, search"},
	{signalField, "search=no", Search, Disallowed, "contentsignals.org, search"},
	{tdmField, "1", TDM, Disallowed, "TDM Reservation Protocol, tdm-reservation"},
	{tdmField, "1", TrainAI, Disallowed, "TDM Reservation Protocol, tdm-reservation; Regulation (EU) 2024/1689, recital 105"},
	{tdmField, "0", TDM, Allowed, "TDM Reservation Protocol, tdm-reservation"},
	{tagField, "noai", TrainAI, Disallowed, "X-Robots-Tag: noai, as DeviantArt introduced it"},
	{tagField, "noai", AIInput, Disallowed, "X-Robots-Tag: noai, as DeviantArt introduced it"},
	{tagField, "noimageai", TrainAI, Disallowed, "X-Robots-Tag: noimageai, of images only"},
	{tagField, "noimageai", AIInput, Disallowed, "X-Robots-Tag: noimageai, of images only"},
	{tagField, "noindex", Search, Disallowed, "Google, Robots meta tag specifications: noindex"},
	{tagField, "none", Search, Disallowed, "Google, Robots meta tag specifications: none is noindex, nofollow"},
}

// add adds to s what a term of its field says. Within one statement, a preference that disallows stays.
func (s *Statement) add(term string) {
	for i := range Mappings {
		if m := &Mappings[i]; m.Field == s.Field && m.Term == term {
			s.Says[m.Category] = max(s.Says[m.Category], m.Preference)
		}
	}
}
