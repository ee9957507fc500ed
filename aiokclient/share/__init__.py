"""The share consumer (KIP-932): records of a topic as a queue, each with a lock of its own."""
