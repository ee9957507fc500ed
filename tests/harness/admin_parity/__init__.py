"""Calls of Java's Admin and of this one on the same cluster, and the comparison of their results.

Both have their arguments as JSON, and return a result as JSON, with the names of Java's accessors
(tests/java/AdminCalls.java). A scenario is a row of a table: a method, its arguments, and what must
exist before. What Java's call changes has a mirror image for ours.
"""
