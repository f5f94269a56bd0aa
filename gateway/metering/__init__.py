"""The ledger of what tenants used: one record for each inference request."""
