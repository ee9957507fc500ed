"""The strategies by which a group assigns partitions."""
