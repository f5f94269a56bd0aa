"""Formats in which models write their reasoning: detection, and division of a completion into reasoning and answer."""
