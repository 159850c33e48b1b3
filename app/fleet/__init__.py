"""All stores at one look: overview, stream of events, series, and the checks that keep them fresh."""
