"""The health of a client. The start of the first client of a process imports this module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokclient.log.tables import Column, Table
from aiokclient.types import State
from aiokclient.types.frozen import fresh, frozen


@frozen
class Health:
    """The state of a client, with the reasons for it and the state of each broker.

    `reasons` is empty if there are no problems. `brokers` has a text for each broker id. The key
    of a bootstrap server whose id is not known yet is its address. `addresses` has the address
    of each broker. `telemetry` is the state of the reporter of client metrics. It begins with
    "failed" if the reporter has died, which does not affect the client. `print(health)` shows one
    line for each reason and broker.
    """

    state: State
    reasons: tuple[str, ...]
    brokers: Mapping[int | str, str]
    addresses: Mapping[int | str, str] = fresh(default_factory=dict)
    telemetry: str = ""

    def __repr__(self) -> str:
        lines = [self.state.name, *(f"  {_one_line(reason)}" for reason in self.reasons)]
        lines += [
            f"  {self._describe_broker(key)}: {_one_line(text)}"
            for key, text in self.brokers.items()
        ]
        if self.telemetry.startswith("failed"):
            lines.append(f"  client metrics: {_one_line(self.telemetry)}")
        return "\n".join(lines)

    def _describe_broker(self, key: int | str) -> str:
        if isinstance(key, str):
            return f"bootstrap server {key}"
        address = self.addresses.get(key)
        return f"broker {key}" if address is None else f"broker {key} ({address})"

    def _make_table(self) -> Table:
        rows = [(self._describe_broker(key), text) for key, text in self.brokers.items()]
        caption = "; ".join((self.state.name, *self.reasons))
        return Table((Column("broker"), Column("state")), rows, caption)

    def _repr_html_(self) -> str:
        return self._make_table().html()

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with a row for each broker.

        Its `attrs` hold the state and the reasons. Requires pandas.
        """
        rows = [(key, self.addresses.get(key), text) for key, text in self.brokers.items()]
        columns = (Column("broker"), Column("address"), Column("state"))
        frame = Table(columns, rows).pandas()
        frame.attrs.update(state=self.state.name, reasons=list(self.reasons))
        return frame


def _one_line(text: str) -> str:
    return " ".join(text.split())
