"""The share groups of the embedded cluster (KIP-932): coordinators and leaders of share partitions.

`records.py` is the life of the records of a share partition, `sessions.py` has the sessions of a
broker, and `assignor.py` divides partitions among members: these three are pure.

The coordinator of a group has its members (`group.py`, `members.py`), and creates the states of its
partitions, which the share coordinator stores (`states.py`). A leader loads a state into a share
partition (`partition.py`), and has all of them with the sessions of its members (`leader.py`).
`fetch.py` acquires for one request, `acknowledging.py` settles, `requests.py` has what both have in
common, and `dead_letters.py` writes what no member could handle.
"""
