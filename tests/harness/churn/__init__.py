"""Groups whose members join and leave: processes that are killed and suspended, on any cluster.

`Crowd` is a group under test. Its members use this library, librdkafka, or Java. They are separate
processes, or, for some members of this library, tasks of the test. They report `Event`s. `audit`
checks these reports for errors.
"""

from .audit import Audit
from .crowd import Crowd, Settings
from .events import Event, Log
from .nursery import Nursery
from .ours import OurMember
from .schedule import churn

__all__ = ["Audit", "Crowd", "Event", "Log", "Nursery", "OurMember", "Settings", "churn"]
