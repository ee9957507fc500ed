"""What stands on groups: a single writer, and work spread over a pool."""
