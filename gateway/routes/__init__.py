"""One module for each resource. Routes translate between HTTP and the operations; they make no decisions."""
