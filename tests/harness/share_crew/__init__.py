"""Share groups on any cluster, whose members are processes that are killed and suspended.

`Crew` is a group under test. Its members use this library, librdkafka, or Java, and report what
their handlers and the brokers do (`processes`). `ShareAudit` checks these reports.
"""

from .audit import ShareAudit
from .crew import Crew
from .site import Change, EmbeddedSite, RealSite, Site

__all__ = ["Change", "Crew", "EmbeddedSite", "RealSite", "ShareAudit", "Site"]
