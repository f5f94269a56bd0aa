"""What gateways and engines of a fleet share through the database."""
