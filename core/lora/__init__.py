"""LoRA adapters as the busy loop knows them: which are there, who uses them, who waits for them. No torch."""
