"""The share groups of the embedded cluster (KIP-932): coordinators and leaders of share partitions.

`records.py` is the life of the records of a share partition, and `sessions.py` has the sessions of
a broker: both are pure. `group.py` has the members of a group, `assignor.py` divides partitions
among them, `states.py` is what a share coordinator stores, `partition.py` is a share partition at
its leader, `leader.py` has all of them at one broker, and `fetch.py` reads for one request.
"""
