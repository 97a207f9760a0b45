"""Models that make one vector of a text."""
