"""What may be said to the base model, in messages or as text, and the tokens that it becomes.

Serving and fine-tuning both read it here, so that an adapter learns from the very tokens that it will be asked with.
"""
