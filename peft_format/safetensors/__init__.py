"""The safetensors header, read strictly and as a stream."""
