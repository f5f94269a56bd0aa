"""From a checked request to text: the one path that every endpoint's completions take."""
