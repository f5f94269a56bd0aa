"""The training API: /api/v1, as the Tinker SDK calls it."""
