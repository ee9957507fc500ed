"""The transactions of the embedded cluster.

`states.py` has the states of a transactional id as a table, `transaction.py` has the data of one
transactional id, and `coordinator.py` has all transactional ids, their coordinators, and the
markers that end transactions. `verification.py` has the question that the leader of a partition
asks the coordinator before the leader appends a batch.
"""
