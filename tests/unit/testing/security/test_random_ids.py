"""Random ids of embedded clusters, which commands take as arguments: none begins with a dash."""

from __future__ import annotations

import base64
import random

from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.broker.security.options import TokenOptions
from aiokclient.testing.broker.security.principal import Principal
from aiokclient.testing.broker.security.tokens import DelegationTokens

COUNT = 1000
"""Of so many ids of which nothing is known, about 16 begin with a dash."""
ALICE = Principal("User", "alice")


def test_no_topic_id_begins_with_a_dash() -> None:
    state = EmbeddedCluster(seed=1)._state
    texts = [base64.urlsafe_b64encode(state.make_topic_id().bytes) for _ in range(COUNT)]
    assert not any(text.startswith(b"-") for text in texts)


def test_no_id_of_a_delegation_token_begins_with_a_dash() -> None:
    tokens = DelegationTokens(TokenOptions("secret", 1, 1), random.Random(1), lambda: 0)
    made = [tokens.create_token(ALICE, ALICE, (), 1).token_id for _ in range(COUNT)]
    assert not any(token_id.startswith("-") for token_id in made)
