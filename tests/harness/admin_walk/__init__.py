"""A random walk of admin calls while brokers are killed, compared with the cluster's state.

The seed determines the calls and the faults. `model` says what the results of the calls mean,
`calls` has the calls, `picture` reads the state of the cluster, and `walk` combines them. On an
embedded cluster (`simulated`), a seed determines everything; on real brokers, it determines which
calls and faults follow each other.
"""
