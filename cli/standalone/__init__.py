"""Parts of the server started on their own, for example one per container."""
