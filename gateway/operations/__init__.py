"""What a tenant can do, shared by REST and gRPC."""
