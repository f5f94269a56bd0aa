"""Training sessions, runs and their commands, checkpoints and samplers."""
