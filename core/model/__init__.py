"""The model: loading, layers, attention over the paged KV cache, sampling."""

import os

# Threads that end a parallel region early wait for the others by spinning, 300,000 turns by default. When another
# process has the core that one of them needs, that is most of a time slice, 400 times a step: a decode step of 40 ms
# takes over a second on two cores with one busy neighbour, against 85 ms with 3,000 turns and no loss when alone.
# libgomp reads this when torch is first imported, which nothing outside this package does.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")
