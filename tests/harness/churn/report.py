"""Reports about a group for human readers."""

import itertools
from collections import Counter

from ownership import Interval

from .audit import Audit
from .events import Event

TOLD = {"joins", "leaves", "suspends", "resumes", "cancels", "killed", "left", "failed"}


def summary(title: str, audit: Audit) -> str:
    """Return one line with the most important counts."""
    ownership = audit.ownership
    told = [how for member in audit.members.values() for how, _ in member.told]
    counts = Counter(told)
    lost = Counter(interval.how for interval in ownership.intervals)
    figures = {
        "members": len([name for name in audit.members if name]),
        "generations": len(audit.generations),
        "assignments": counts["assigned"],
        "revocations": counts["revoked"],
        "losses": counts["lost"],
        "intervals": len(ownership.intervals),
        "of them lost or killed": lost["lost"] + lost["killed"],
        "two owners, one of them removed": len(audit.overlaps),
        "refused commits": len(audit.refused),
        "records": ownership.count(),
        "again": ownership.doubles,
    }
    shown = ", ".join(f"{count:,} {name}" for name, count in figures.items())
    return f"{title}: {shown}; {silence(audit)}; {audit.now - audit.start:.1f} s"


def silence(audit: Audit) -> str:
    """Return the longest time in which no record was processed."""
    times = [event.time for event in audit.events if event.what == "done"]
    gaps = [(later - at, at) for at, later in itertools.pairwise(times)]
    longest, at = max(gaps, default=(0.0, audit.start))
    return f"longest silence {longest:.2f} s, from {at - audit.start:.2f} s on"


def details(audit: Audit) -> str:
    """Return the actions of the test, the generations, and the owners of partitions over time."""
    lines = ["done to the group:"]
    lines += [f"  {happened(event, audit.start)}" for event in audit.events if shown(event)]
    lines.append("generations, and who was assigned something in them:")
    lines += [
        f"  {number}: {', '.join(dict.fromkeys(names))}"
        for number, names in sorted(audit.generations.items())
    ]
    lines.append(
        "partitions, and whose they were, from when to when (r revoked, l lost, k killed):"
    )
    rows: dict[int, list[Interval]] = {}
    for interval in audit.ownership.intervals:
        rows.setdefault(interval.tp.partition, []).append(interval)
    lines += [
        f"  {partition}: " + "  ".join(map(stretch, intervals))
        for partition, intervals in sorted(rows.items())
    ]
    lines += [f"refused: {text}" for text in audit.refused]
    return "\n".join(lines)


def stretch(interval: Interval) -> str:
    end = "" if interval.end is None else f"{interval.end:.2f}{interval.how[:1]}"
    return f"{interval.member} {interval.begin:.2f}-{end}"


def shown(event: Event) -> bool:
    return event.what in TOLD or event.what == "warning"


def happened(event: Event, start: float) -> str:
    words = " ".join(str(each) for each in event.data if each != "")
    return f"{event.time - start:7.2f} {event.who} {event.what} {words}"
