"""The gateway's configuration."""
