"""What all benchmarks share: a subject runs in a child process, rounds interleave, medians count.

A benchmark lists `Subject`s and `Spec`s; `rounds` runs them against one Kafka and gives a
`Measurement` for each; `Table` and `Report` show them.
"""
