"""`loragate serve`: starts the parts, restarts them when they die, and stops them in order."""
