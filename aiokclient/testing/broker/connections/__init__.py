"""Connections to a broker: where they come from, how clients log in, and the order of requests."""
