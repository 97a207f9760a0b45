"""Models that make one vector of a text: no tokens come out, no KV cache is kept, a request is one forward pass."""
