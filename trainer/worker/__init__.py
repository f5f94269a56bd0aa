"""The trainer's process: runs the commands of all tenants' training runs."""
