"""The producer: batches by partition, one sender per broker, up to five requests in flight."""

from aiokclient.producer.delivery.deliveries import Deliveries
from aiokclient.producer.delivery.delivery import Delivery
from aiokclient.producer.producer import Producer

__all__ = ["Deliveries", "Delivery", "Producer"]
