"""The data types of generation: requests, sequences and their outputs."""
