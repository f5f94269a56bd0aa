"""One attempt at a job: lease, data, trainer process, checkpoints, publishing."""
