"""The types of this name in `aiokclient._native`, as compiled modules know them."""

from aiokclient._native.producer cimport BatchState, DeliveryBatch, QueueState, TopicState, WakeQueue
