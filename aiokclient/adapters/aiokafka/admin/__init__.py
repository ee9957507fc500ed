"""The admin client with aiokafka's interface."""

from __future__ import annotations

from aiokclient.adapters.aiokafka.admin.client import AIOKafkaAdminClient
from aiokclient.adapters.aiokafka.admin.new_partitions import NewPartitions
from aiokclient.adapters.aiokafka.admin.new_topic import NewTopic
from aiokclient.adapters.aiokafka.admin.records_to_delete import RecordsToDelete

__all__ = ["AIOKafkaAdminClient", "NewPartitions", "NewTopic", "RecordsToDelete"]
