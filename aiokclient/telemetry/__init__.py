"""Client metrics (KIP-714): what a client measures, pushed to the brokers that ask for it.

    instruments ──▶ `Collector` ──▶ points ──▶ reporter ──▶ OTLP ──▶ PushTelemetry

The collectors give the metrics the names of Kafka's own clients. The reporter asks a broker which
metrics it wants, and pushes them; `states.py` has the table of its states. Nothing here affects
the work of the client.
"""

from __future__ import annotations

from typing import Final

LAST_PUSH_S: Final = 0.5
"""Maximum number of seconds that the last push may take during a close."""
