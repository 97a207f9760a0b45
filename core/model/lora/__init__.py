"""LoRA adapters: what a PEFT folder holds, and how rows of a batch that name an adapter get what it adds."""
