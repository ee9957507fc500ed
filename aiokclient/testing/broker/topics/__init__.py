"""Topics and partitions: their replicas, their logs, and the producers that write to them."""
