"""Brokers on loopback with scripted responses, and servers that are not brokers."""

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
