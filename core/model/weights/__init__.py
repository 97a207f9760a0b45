"""Reading a model's files: GGUF and safetensors, numbers and tensors."""
