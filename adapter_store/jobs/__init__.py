"""Fine-tuning jobs: the queue, leases, history and results."""
