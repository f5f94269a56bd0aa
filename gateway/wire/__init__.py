"""What leaves this server: OpenAI's response objects, built from our nouns."""
