"""Operations of tenants, shared by REST and gRPC."""
