"""Groups whose members come and go: processes that are killed and suspended, on any cluster.

`Crowd` is a group under test. Its members, ours, librdkafka's and Java's, are processes of their
own (some of ours tasks of the test), and tell what happens to them as `Event`s. `audit` goes
through what they told and finds what must not be.
"""

from .audit import Audit
from .crowd import Crowd, Settings
from .events import Event, Log
from .nursery import Nursery
from .ours import OurMember
from .schedule import churn

__all__ = ["Audit", "Crowd", "Event", "Log", "Nursery", "OurMember", "Settings", "churn"]
