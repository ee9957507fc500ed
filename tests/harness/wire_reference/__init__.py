"""Kafka's own message definitions and its Java implementation, to compare ours with."""

from wire_reference.definitions import Definition, load
from wire_reference.interpreter import Interpreter
from wire_reference.java import WireOracle
from wire_reference.mapping import to_object
from wire_reference.samples import Sampler

__all__ = ["Definition", "Interpreter", "Sampler", "WireOracle", "load", "to_object"]
