"""The common parts of all benchmarks.

A benchmark lists `Subject`s (clients) and `Spec`s (workloads). `rounds` runs each subject in a
child process against one Kafka cluster, in interleaved rounds, and returns a `Measurement` with
medians for each subject. `Table` and `Report` format the measurements.
"""
