"""The protocol without IO: messages, their codecs, and frames.

    from aiokclient.protocol import ApiKey, messages

    segments = messages.MetadataRequest(topics=None).encode(12)
    response = messages.MetadataResponse.decode(data, 12)

Nothing here awaits or uses sockets. The client and the embedded cluster use the
same definitions.
"""

from aiokclient.protocol import messages
from aiokclient.protocol.api import ApiKey

__all__ = ["ApiKey", "messages"]
