"""The strategy "sticky"."""
