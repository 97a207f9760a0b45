"""What quantized weights cost in quality, beside what they cost in another engine."""
