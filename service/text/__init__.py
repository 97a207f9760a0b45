"""Text to tokens and back: chat templates, tokenizer, stop strings."""
