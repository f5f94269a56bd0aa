"""The objects of responses: the shape of each, and what builds it."""
