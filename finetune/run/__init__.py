"""One attempt at a job: its lease, data, trainer process, checkpoints and publishing."""
