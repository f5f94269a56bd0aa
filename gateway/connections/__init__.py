"""Connections of clients: accepting, TLS, limits, addresses, and the HTTP/1.1 protocol on them."""
