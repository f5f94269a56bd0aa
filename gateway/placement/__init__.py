"""Which engines hold an adapter, and which of them serves a request."""
