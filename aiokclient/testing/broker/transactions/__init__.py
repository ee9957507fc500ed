"""The transactions of the embedded cluster.

`states.py` has the states of a transactional id as a table, `transaction.py` is the record of one
transactional id, and `coordinator.py` has all of them, their coordinators, and the markers that end
transactions. `verification.py` has the question that the leader of a partition asks the coordinator
before it appends a batch.
"""
