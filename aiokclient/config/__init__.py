"""The options of all clients, with their defaults, limits, and texts.

Options have Kafka's names, with `_` for `.`, and Kafka's units: an option that ends in `_ms` counts
milliseconds. A configuration is immutable and checked when it is made. ConfigError names the
option and what is allowed.
"""
