"""The options that `serve` and `gateway` share, a file for each section of their help."""
