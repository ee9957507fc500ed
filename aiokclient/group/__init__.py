"""Membership in a group of processes, for consumers and for any other kind of group.

Programs use `GroupMember`. It and the consumer are both built on `GroupEngine`.
"""

from __future__ import annotations

import sys

import aiokclient

# Pickles of an earlier version name this module, in which `aiokclient.GroupProtocol` was.
sys.modules[f"{__name__}.generation_mailbox"] = aiokclient
