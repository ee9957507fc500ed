"""Membership in a group of processes, for consumers and for any other kind of group.

Programs use `GroupMember`. It and the consumer are both built on `GroupEngine`.
"""
