"""Publishing a version: staging, validation, probe, registration and quarantine."""
