"""The model: loading, layers, attention over the paged KV cache, sampling."""
