"""Generation: the one path from a request body to text, for all endpoints."""
