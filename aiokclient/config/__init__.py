"""The options of all clients, with their defaults, limits, and texts.

Names are Kafka's with `_` for `.`, and so are the units: an option that ends in `_ms` counts
milliseconds. A configuration is immutable and checked when it is made. ConfigError names the
option and what is allowed.
"""
