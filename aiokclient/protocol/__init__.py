"""The protocol without IO: messages, their codecs, and frames.

    from aiokclient.protocol import ApiKey, messages

    segments = messages.MetadataRequest(topics=None).encode(12)
    response = messages.MetadataResponse.decode(data, 12)

Nothing here awaits or knows of sockets; the client and the embedded cluster
stand on the same definitions, each from its own side.
"""

from aiokclient.protocol import messages
from aiokclient.protocol.api import ApiKey

__all__ = ["ApiKey", "messages"]
