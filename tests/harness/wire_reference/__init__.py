"""Kafka's message definitions and its Java implementation, for comparison with this library."""

from wire_reference.definitions import Definition, load
from wire_reference.interpreter import Interpreter
from wire_reference.java import WireOracle
from wire_reference.mapping import to_object
from wire_reference.samples import Sampler

__all__ = ["Definition", "Interpreter", "Sampler", "WireOracle", "load", "to_object"]
