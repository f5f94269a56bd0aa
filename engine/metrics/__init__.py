"""Counters, histograms and the timeline of the engine."""
