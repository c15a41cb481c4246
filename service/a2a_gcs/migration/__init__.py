"""Brings tasks that another server has kept into this layout; the source is only read."""
