"""The headers of requests and responses.

The client id never has a compact length, so that a broker can read the header of
an ApiVersions request that is newer than itself.
"""

from __future__ import annotations

from aiokclient.protocol.schema import Message, int16, int32, string


class RequestHeader(Message, versions="1-2", flexible="2+", in_front=True):
    """Before every request; version 2 where the request is flexible."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(null="0+", flexible="none")


class ResponseHeader(Message, versions="0-1", flexible="1+", in_front=True):
    """Before every response; version 1 where the response is flexible."""

    correlation_id: int = int32()
