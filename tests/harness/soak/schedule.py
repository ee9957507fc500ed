"""The faults of a run, which the seed alone determines: what, where, when, and for how long.

Three tracks run at the same time: faults of brokers, of the network, and of group members. Each
track shuffles its kinds of faults and goes through them again and again, so that even a short run
has every kind. Within a track, each fault begins after the previous one has ended. So at most one
of the three brokers is down at a time, and partitions with two in-sync replicas accept records.

Times are in seconds from the start of the schedule. A fault begins late if the previous fault of
its track takes longer than planned, as the restart of a broker may on a slow machine.
"""

import json
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

NODES = (1, 2, 3)
SIDES = (0, 1)
"""The sides of the network. Each client uses one, so a fault affects half of the clients."""
GROUPS = ("classic", "kip848", "transform")


class Kind(NamedTuple):
    """A kind of fault, with the range of its duration in seconds."""

    name: str
    track: str
    shortest: float
    longest: float


KINDS = (
    Kind("kill", "broker", 1, 4),
    Kind("suspend", "broker", 1, 8),
    Kind("terminate", "broker", 0.5, 2),
    Kind("move", "broker", 0, 0),
    Kind("cut", "network", 0, 0),
    Kind("freeze", "network", 0.5, 9),
    Kind("half_open", "network", 0.5, 4),
    Kind("slow", "network", 1, 5),
    Kind("slice", "network", 1, 4),
    Kind("short_lives", "network", 2, 6),
    Kind("reset_requests", "network", 1, 3),
    Kind("reset_responses", "network", 1, 3),
    Kind("refuse", "network", 0.5, 4),
    Kind("rebootstrap", "network", 2, 4),
    Kind("join", "group", 2, 6),
    Kind("replace", "group", 0, 0),
    Kind("leave", "group", 0.5, 3),
    Kind("credentials", "group", 0, 0),
)
PAUSES = {"broker": (3.0, 6.0), "network": (0.3, 2.0), "group": (0.5, 3.0)}
"""The range of the seconds between the faults of a track."""
RESTART_S = {"kill": 6.0, "terminate": 6.0, "suspend": 1.0, "move": 1.0}
"""The seconds that a broker usually needs after a fault until it is in sync again."""


class Fault(NamedTuple):
    """One fault. Depending on its kind, it affects `node`, `side`, or `group`."""

    at: float
    kind: str
    seconds: float
    node: int
    side: int
    group: str
    number: int
    """A random number for details, such as the number of bytes before a connection ends."""

    def __str__(self) -> str:
        return f"{self.at:6.1f} s  {self.kind} {described(self)}"


def described(fault: Fault) -> str:
    """Return what a fault affects and for how long, for human readers."""
    track = track_of(fault.kind)
    whom = {
        "broker": f"broker {fault.node}",
        "network": f"side {fault.side}, {'all brokers' if all_brokers(fault) else fault.node}",
        "group": f"group {fault.group}",
    }[track]
    return f"{whom} for {fault.seconds:.1f} s" if fault.seconds else whom


def track_of(kind: str) -> str:
    return next(each.track for each in KINDS if each.name == kind)


def all_brokers(fault: Fault) -> bool:
    """Return whether a fault of the network affects the connections to all brokers."""
    return fault.kind == "rebootstrap" or fault.number % 3 == 0


def schedule(seed: int, begin: float, end: float) -> list[Fault]:
    """Return the faults of one period. Each begins after `begin`, and ends before `end`."""
    # The seed is a text, because `Random` hashes a text to the same number in every process.
    rng = random.Random(f"{seed} from {begin:g} to {end:g}")
    faults = [fault for track in PAUSES for fault in _track(track, rng, begin, end)]
    return sorted(faults)


def _track(track: str, rng: random.Random, begin: float, end: float) -> Iterator[Fault]:
    at = begin + rng.uniform(0, PAUSES[track][0])
    kinds = [kind for kind in KINDS if kind.track == track]
    for kind in _decks(kinds, rng):
        fault = Fault(
            at=round(at, 1),
            kind=kind.name,
            seconds=round(rng.uniform(kind.shortest, kind.longest), 1),
            node=rng.choice(NODES),
            side=rng.choice(SIDES),
            group=rng.choice(GROUPS),
            number=rng.randrange(10_000),
        )
        at += fault.seconds + RESTART_S.get(kind.name, 0.0)
        if at > end:
            return
        yield fault
        at += rng.uniform(*PAUSES[track])


def _decks(kinds: Sequence[Kind], rng: random.Random) -> Iterator[Kind]:
    while True:
        deck = list(kinds)
        rng.shuffle(deck)
        yield from deck


def as_text(faults: Sequence[Fault]) -> str:
    """Return the faults as a text. Only equal lists of faults have equal texts."""
    return "\n".join(json.dumps(fault) for fault in faults)
