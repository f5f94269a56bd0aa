"""What a job asks for: hyperparameters, recipe and model name; imports no torch."""
