"""What a worker and the process that trains exchange: an assignment, settings and messages; imports no torch."""
