"""Membership in a group of processes, for consumers and for anything else."""
