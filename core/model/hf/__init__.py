"""All other decoders, through transformers' own definitions of them."""
