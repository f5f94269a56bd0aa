"""What clients send to the base model, as messages or as text, and the tokens that it becomes.

Serving and fine-tuning share this package, so an adapter trains on exactly the tokens that it is later prompted with.
"""
