"""The one reading of PEFT's adapter format."""
