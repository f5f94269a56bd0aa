"""Reception of uploaded files: multipart forms, spooled to disk while they arrive."""
