"""The way from fetched bytes to the application's records, for consumers and share consumers.

`batches` reads the records of a batch, in the event loop or in a thread. `acquired` does so for the
offsets of a partition that a share consumer has acquired. `deserialize` makes keys and values of
bytes, and `preparation` awaits what deserializers need first, such as a schema. None of these
modules knows a position, a fetch, or a group.
"""
