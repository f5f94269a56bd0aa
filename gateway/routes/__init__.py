"""One module for each resource. Routes translate between HTTP and the services; they decide nothing."""
