"""What tenants used: one record for each inference request, kept by a ledger."""
