"""One module a command; what is heavy is imported inside it, so that `--help` is quick."""
