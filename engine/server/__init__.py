"""The engine's gRPC server: sessions, and conversions between protobuf and the engine's data types."""
