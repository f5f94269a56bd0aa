"""Several engines of one base model, and which of them serves a request."""
