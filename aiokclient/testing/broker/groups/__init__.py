"""The groups of the embedded cluster: their coordinators, members, and committed offsets.

`coordinator.py` has all groups and their coordinators, `group.py` is the base class of all kinds of
groups, `classic.py` is the classic protocol, and `offsets.py` has the committed offsets.
"""
