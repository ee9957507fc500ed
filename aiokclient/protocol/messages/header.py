"""The headers of requests and responses.

The client id never has a compact length, so that a broker can read the header of
an ApiVersions request in a version that it does not support.
"""

from __future__ import annotations

from aiokclient.protocol.schema import Message, int16, int32, string


class RequestHeader(Message, versions="1-2", flexible="2+", in_front=True):
    """The header of every request. Version 2 is for requests of flexible versions."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(null="0+", flexible="none")


class ResponseHeader(Message, versions="0-1", flexible="1+", in_front=True):
    """The header of every response. Version 1 is for responses of flexible versions."""

    correlation_id: int = int32()
