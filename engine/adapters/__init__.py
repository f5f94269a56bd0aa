"""The adapter pool: device, host and disk tiers, and the copies between them."""
