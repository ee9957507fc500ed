"""aiokafka's interface on aiokclient, for programs that move from one to the other.

    from aiokclient.adapters.aiokafka import AIOKafkaConsumer, AIOKafkaProducer

It has the names, the arguments, and the defaults of aiokafka 0.14, whose submodules are here under
the same names: `errors`, `structs`, `abc`, `admin`, `helpers`, `partitioner`, and
`coordinator.assignors`. `producer.native` and `consumer.native` are the objects of aiokclient, so
that a program can move on call by call. `install()` puts all of this in place of `aiokafka` for
programs that cannot be edited.
"""

from __future__ import annotations

from aiokclient.adapters.aiokafka.abc import ConsumerRebalanceListener
from aiokclient.adapters.aiokafka.client import VERSION, AIOKafkaClient
from aiokclient.adapters.aiokafka.consumer import AIOKafkaConsumer
from aiokclient.adapters.aiokafka.errors import ConsumerStoppedError, IllegalOperation
from aiokclient.adapters.aiokafka.installation import install
from aiokclient.adapters.aiokafka.producer import AIOKafkaProducer
from aiokclient.adapters.aiokafka.structs import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

__all__ = [
    "AIOKafkaClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "install",
]

__version__ = VERSION
