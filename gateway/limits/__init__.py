"""What tenants, their keys and their adapters may use, and what they have left."""
