"""Timeouts, circuit breaker, periodic loops, caches."""
