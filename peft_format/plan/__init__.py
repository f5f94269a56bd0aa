"""From a config and the base's manifest to a plan per module."""
