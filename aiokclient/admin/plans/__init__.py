"""The admin calls that do several steps: resets and copies of offsets, and topics that must exist.

Each call first makes a plan, which `dry_run` returns, and then executes it.
"""
