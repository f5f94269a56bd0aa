"""Routes of a tenant's resources: adapters, files, jobs, imports, usage."""
