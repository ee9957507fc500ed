"""The pipeline from the metrics that clients push (KIP-714) to tables and plots, on Spark.

    records ─▶ `write_tables` ─▶ Parquet ─▶ `read_tables` ─▶ views ─▶ `make_dashboard`

`records` are those of the topic into which a receiver writes each push. `read_points` reads them
without a streaming query. The tidy table has one row for each point, and `totals` adds up the
values of its points. Names are imported when they are first used, because they need pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokclient.spark.telemetry.dashboard import Dashboard, make_dashboard
    from aiokclient.spark.telemetry.query import write_tables
    from aiokclient.spark.telemetry.tables import Tables, read_points, read_tables, totals
    from aiokclient.spark.telemetry.views import (
        fleet_by_version,
        instances,
        lag_by_client,
        latency_by_client,
        lost_pushes,
        rebalances_by_group,
        rejections,
        restarts,
        silent_clients,
        slow_clients,
        throughput_by_client,
        top_errors,
    )

__all__ = [
    "Dashboard",
    "Tables",
    "fleet_by_version",
    "instances",
    "lag_by_client",
    "latency_by_client",
    "lost_pushes",
    "make_dashboard",
    "read_points",
    "read_tables",
    "rebalances_by_group",
    "rejections",
    "restarts",
    "silent_clients",
    "slow_clients",
    "throughput_by_client",
    "top_errors",
    "totals",
    "write_tables",
]

_MODULES = {
    "Dashboard": "dashboard",
    "Tables": "tables",
    "fleet_by_version": "views",
    "instances": "views",
    "lag_by_client": "views",
    "latency_by_client": "views",
    "lost_pushes": "views",
    "make_dashboard": "dashboard",
    "read_points": "tables",
    "read_tables": "tables",
    "rebalances_by_group": "views",
    "rejections": "views",
    "restarts": "views",
    "silent_clients": "views",
    "slow_clients": "views",
    "throughput_by_client": "views",
    "top_errors": "views",
    "totals": "tables",
    "write_tables": "query",
}
"""The module of each public name. `.ci/write-names` writes it from the imports above."""


if not TYPE_CHECKING:  # If type checkers saw the function, they would accept any name.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
