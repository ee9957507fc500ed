"""The admin client. Each module has the calls of one subject."""

from aiokclient.admin.client import Admin
from aiokclient.admin.cluster import AclOperation, BrokerDescription, ClusterDescription
from aiokclient.admin.configs import (
    Append,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigType,
    ResourceType,
    Subtract,
    Synonym,
)
from aiokclient.admin.group_descriptions import (
    GroupDescription,
    GroupListing,
    GroupMemberDescription,
)
from aiokclient.admin.partitions import NewPartitions
from aiokclient.admin.results import Results
from aiokclient.admin.topics import (
    CreatedTopic,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)

__all__ = [
    "AclOperation",
    "Admin",
    "Append",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigType",
    "CreatedTopic",
    "GroupDescription",
    "GroupListing",
    "GroupMemberDescription",
    "NewPartitions",
    "NewTopic",
    "PartitionDescription",
    "ResourceType",
    "Results",
    "Subtract",
    "Synonym",
    "TopicDescription",
    "TopicListing",
]
