"""`loragate serve`: starts the parts of a server, restarts them when they die, and stops them in order."""
