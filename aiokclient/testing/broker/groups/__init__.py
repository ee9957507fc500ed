"""The groups of the embedded cluster: their coordinator, their members, their offsets.

`coordinator.py` knows all groups and which broker has them; `group.py` is what every kind of
group has; `classic.py` is the classic protocol, `offsets.py` what is committed.
"""
