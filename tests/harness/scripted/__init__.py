"""A broker on loopback that says what a test tells it to, and servers that are no broker at all."""

from .broker import Answer, ScriptedBroker
from .server import Server, raw_server
from .wire import MemoryTransport, frame, response_frame

__all__ = [
    "Answer",
    "MemoryTransport",
    "ScriptedBroker",
    "Server",
    "frame",
    "raw_server",
    "response_frame",
]
