"""The tenants' REST API: authentication, models, streaming."""
