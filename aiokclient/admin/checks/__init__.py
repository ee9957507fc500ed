"""The check of a whole cluster: first its addresses, and then what its brokers say.

The bootstrap servers are tried at the same time, and then the brokers that they name, at the
addresses that these advertise. Only if a broker can be used there, a started client is needed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokclient.admin.checks.addresses import check_addresses
from aiokclient.admin.checks.cluster import (
    ask_cluster,
    check_features,
    check_versions,
    name_cluster,
)
from aiokclient.admin.checks.report import ClusterReport, ReportNotes
from aiokclient.cluster.lifecycle.states import LifecyclePhase
from aiokclient.errors import BootstrapError, KafkaError

if TYPE_CHECKING:
    from aiokclient.admin.admin import Admin


async def check_cluster(admin: Admin, timeout: float) -> ClusterReport:
    """See `Admin.check_cluster`. The `timeout` is in seconds."""
    if admin._phase not in (LifecyclePhase.NEW, LifecyclePhase.STARTING):
        admin._require_usable()
        if admin._cluster.reached:
            return await _check_cluster(admin, is_started=True, timeout=timeout)
    options: Any = {**admin._config.given_options(), "enable_metrics_push": False}
    return await _check_cluster(type(admin)(**options), is_started=False, timeout=timeout)


async def _check_cluster(admin: Admin, *, is_started: bool, timeout: float) -> ClusterReport:
    """Return the report. An object that is not started is started, and closed again."""
    deadline = asyncio.get_running_loop().time() + timeout
    notes = ReportNotes()
    known = admin._cluster.metadata.brokers if is_started else {}
    cluster = await check_addresses(admin._config, notes, known, timeout)
    check_versions(notes, cluster.answers)
    check_features(notes, cluster.answers)
    if not cluster.answers:
        return notes.make_report()
    if is_started:
        await ask_cluster(admin._requests, notes, cluster, deadline)
        return notes.make_report()
    try:
        async with asyncio.timeout_at(deadline):
            await admin.start(wait=True)
    except (KafkaError, TimeoutError) as error:
        if not isinstance(error, KafkaError):
            error = BootstrapError()
        notes.add_failure("brokers", name_cluster(cluster), error)
        return notes.make_report()
    try:
        await ask_cluster(admin._requests, notes, cluster, deadline)
    finally:
        await admin.close()
    return notes.make_report()
