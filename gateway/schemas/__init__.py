"""What request bodies may hold. Every bound on a single field is here."""
