"""gRPC options of the link between the engine and its clients.

Each side's gRPC answers pings from a thread that does not need the interpreter. A process that computes, collects
garbage or waits for a busy machine's processor still answers; one that is stopped, or whose machine is lost, does
not.
"""

_BOTH = (
    ("grpc.max_receive_message_length", 256 << 20),  # a manifest contains tokenizer.json: 17 MB for Llama 3
    ("grpc.max_send_message_length", 256 << 20),
    ("grpc.http2.max_pings_without_data", 0),  # no bound
)
CLIENT_OPTIONS = (
    *_BOTH,
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),
    ("grpc.keepalive_time_ms", 1000),  # of silence before a ping
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.http2.ping_timeout_ms", 3000),
)
SERVER_OPTIONS = (
    *_BOTH,
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 100),
    ("grpc.http2.max_ping_strikes", 0),
)
