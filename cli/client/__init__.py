"""Our commands as clients of a running server's HTTP API."""
