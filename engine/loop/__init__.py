"""The step loop: commands in, a scheduled step, outputs out."""
