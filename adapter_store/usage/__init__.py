"""The usage ledger and its sums."""
