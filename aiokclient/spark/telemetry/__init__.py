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
    "dashboard": ("Dashboard", "make_dashboard"),
    "query": ("write_tables",),
    "tables": ("Tables", "read_points", "read_tables", "totals"),
}


if not TYPE_CHECKING:  # If type checkers saw the function, they would accept any name.

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = next((each for each, names in _MODULES.items() if name in names), "views")
        return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
