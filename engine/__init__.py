"""The base model, its scheduler, its paged memory, and its gRPC server and client."""
