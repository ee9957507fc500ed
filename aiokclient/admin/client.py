"""The admin client: everything that is asked of a cluster but records."""

from __future__ import annotations

from typing import ClassVar, Never, Unpack

from aiokclient.admin.cluster import ClusterSubject
from aiokclient.admin.configs import Configs
from aiokclient.admin.group_offsets import GroupOffsets
from aiokclient.admin.partitions import Partitions
from aiokclient.admin.records import Records
from aiokclient.admin.topics import Topics
from aiokclient.cluster.shared_client import ClientLike, config_of
from aiokclient.config import AdminConfig, AdminOptions
from aiokclient.config.problems import refuse_positional

__all__ = ["Admin"]


class Admin(Topics, Partitions, Records, ClusterSubject, Configs, GroupOffsets):
    """Creates, describes, changes and deletes what a cluster has.

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            created = await admin.create_topics([NewTopic("orders", 6)])
            created.raise_for_errors()

    A call that is about several things answers with `Results`: a mapping from each thing to its
    result or its error. What a call is about as a whole, it returns or raises. Every call ends by
    its `timeout` in seconds (`default_api_timeout_ms`) and tries again until then what may pass.
    Calls may run at the same time. Options: `AdminConfig`; `client` shares connections.
    """

    closing_rank: ClassVar[int] = 2
    config_type: ClassVar[type[AdminConfig]] = AdminConfig

    def __init__(
        self, *wrong: Never, client: ClientLike | None = None, **options: Unpack[AdminOptions]
    ) -> None:
        refuse_positional("Admin", wrong)
        shared = config_of(client)
        super().__init__(AdminConfig.build(options, client=shared), client)
