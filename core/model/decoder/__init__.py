"""The decoders that we compute ourselves: Llama and its kin."""
