"""The timeline of a run: its events over virtual time, as text and as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from aiokclient.testing.exploration.history import History, HistoryEvent
from aiokclient.types import public_in

_SHOWN: Final = 60
_WIDTH: Final = 1100
_LEFT: Final = 170
_ROW: Final = 34
_TASK_ROW: Final = 20
_MOST_TASKS: Final = 6
"""The most lanes for the tasks of an instance."""
_LONGEST_NAME: Final = 24
_TICK: Final = 55
"""The least distance between two ticks."""
_GAP_S: Final = 3.0
_GAP_WIDTH_S: Final = 0.5
"""Times without events that are longer than `_GAP_S` are as wide as this."""
_COLORS: Final = {
    "fault": "#c62828",
    "handled": "#2e7d32",
    "commit": "#1565c0",
    "produce": "#6a1b9a",
    "error": "#e65100",
    "end": "#37474f",
    "start": "#37474f",
    "kill": "#c62828",
    "cancel": "#c62828",
    "down": "#c62828",
    "up": "#37474f",
}
_KINDS: Final = ("handled", "commit", "produce")
_LEGEND: Final = {
    "fault": "fault, cancellation, kill",
    "handled": "handled",
    "commit": "commit",
    "produce": "produce",
    "error": "error",
    "start": "start, end",
}
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#222}.axis{stroke:#bbb}.lane{stroke:#ddd}"
    ".gap{fill:#888;opacity:.18}.bar{fill:#90a4ae;opacity:.35}"
    ".small{font-size:10px;fill:#555}rect.back{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#eee}.small{fill:#aaa}rect.back{fill:#1b1b1f}"
    ".axis{stroke:#555}.lane{stroke:#333}}"
)


class _Axis:
    """The time axis of a picture. Long times in which nothing happens are short on it."""

    def __init__(self, times: Sequence[float], end: float) -> None:
        self.gaps: list[tuple[float, float]] = []
        """The times that are short."""
        before = 0.0
        for at in [*times, end]:
            if at - before > _GAP_S:
                self.gaps.append((before, at))
            before = at
        self._end = end
        span = end - sum(ended - began - _GAP_WIDTH_S for began, ended in self.gaps)
        self._scale = (_WIDTH - _LEFT - 40) / max(span, 0.5)

    def find_x(self, at: float) -> float:
        """Return the position of a time."""
        left = at
        for began, ended in self.gaps:
            if at > began:
                part = (min(at, ended) - began) / (ended - began)
                left -= part * (ended - began - _GAP_WIDTH_S)
        return _LEFT + left * self._scale

    def list_ticks(self) -> list[int]:
        """Return whole seconds that are far enough from each other, and in no gap."""
        ticks: list[int] = []
        for second in range(int(self._end) + 1):
            if any(began < second < ended for began, ended in self.gaps):
                continue
            if not ticks or self.find_x(second) - self.find_x(ticks[-1]) >= _TICK:
                ticks.append(second)
        return ticks


@public_in("aiokclient.testing")
class Timeline:
    """What happened in a run. `str(timeline)` is text, and `svg()` a picture."""

    def __init__(self, history: History, verdict: str, end: float) -> None:
        self.events = list(history.events)
        self._brokers, self._spans = history.brokers, list(history.spans)
        self._verdict, self._end = verdict, end

    def __str__(self) -> str:
        """Return the events around the faults, a line for each, the last one at the end."""
        shown = self._choose_events()
        lines = []
        skipped = 0
        for event in self.events:
            if event in shown:
                if skipped:
                    lines.append(f"               ... {skipped} more")
                    skipped = 0
                lines.append(f"{event.at:10.3f} s  {event.track:<11}  {event.text}")
            else:
                skipped += 1
        if skipped:
            lines.append(f"               ... {skipped} more")
        lines.append(f"{self._end:10.3f} s  {'verdict':<11}  {self._verdict}")
        return "\n".join(lines)

    def _choose_events(self) -> set[HistoryEvent]:
        """Return the events that text shows: all rare ones, and those around faults."""
        rare = [i for i, each in enumerate(self.events) if each.kind not in _KINDS]
        if len(rare) > _SHOWN:
            rare = rare[: _SHOWN // 2] + rare[-_SHOWN // 2 :]
        chosen = set(rare)
        for distance in range(1, 20):
            if len(chosen) >= _SHOWN:
                break
            for index in rare:
                chosen.update({index - distance, index + 1})
        return {self.events[index] for index in chosen if 0 <= index < len(self.events)}

    def svg(self) -> str:
        """Return a picture over virtual time.

        It has a lane for the faults, one for each instance of the service and for its tasks by
        their names, and one for each broker.
        """
        lanes = self._make_lanes()
        bottom = 40 + sum(lane.height for lane in lanes)
        height = bottom + 60
        axis = _Axis([each.at for each in self.events], self._end)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" role="img">',
            f"<style>{_STYLE}</style>",
            f'<rect class="back" width="{_WIDTH}" height="{height}"/>',
            f"<title>{escape(self._verdict)}</title>",
            f'<text x="10" y="20">{escape(_shorten(self._verdict, 160))}</text>',
            *_draw_axis(axis, bottom),
        ]
        y = 40.0
        for lane in lanes:
            parts += _draw_lane(lane, y + lane.height / 2, axis, self._end)
            y += lane.height
        legend = " ".join(
            f'<tspan fill="{_COLORS[kind]}">&#9632;</tspan> <tspan>{label}</tspan>&#160;&#160;'
            for kind, label in _LEGEND.items()
        )
        parts.append(f'<text class="small" x="{_LEFT}" y="{height - 10}">{legend}</text>')
        parts.append("</svg>")
        return "\n".join(parts)

    def _make_lanes(self) -> list[_Lane]:
        faults = [each for each in self.events if each.track == "fault"]
        lanes = [_Lane("faults", "fault", _ROW, faults, [])]
        brokers = [f"broker-{number}" for number in range(1, self._brokers + 1)]
        tracks = dict.fromkeys(e.track for e in self.events if e.track not in ("fault", *brokers))
        for track in tracks:
            lanes += self._make_instance_lanes(track)
        for track in brokers:
            events = [each for each in self.events if each.track == track]
            bars = _find_bars(events, "up", ("down",), self._end, is_running=True)
            lanes.append(_Lane(track.replace("-", " "), "broker", _ROW - 8, events, bars))
        return lanes

    def _make_instance_lanes(self, track: str) -> list[_Lane]:
        """Return the lane of an instance, and those of its tasks, the busiest ones."""
        events = [each for each in self.events if each.track == track]
        bars = _find_bars(events, "start", ("end", "kill"), self._end)
        lanes = [_Lane(track, "service", _ROW - 4, [e for e in events if not e.task], bars)]
        spans = [each for each in self._spans if each.track == track]
        counts = Counter([s.task for s in spans] + [e.task for e in events if e.task])
        shown = {name for name, _ in counts.most_common(_MOST_TASKS)}
        for name in (each for each in counts if each in shown):
            mine = [(each.began, each.ended) for each in spans if each.task == name]
            times = f" x{len(mine)}" if len(mine) > 1 else ""
            label = "   " + _shorten(name, _LONGEST_NAME - len(times)) + times
            own = [each for each in events if each.task == name]
            lanes.append(_Lane(label, "task", _TASK_ROW, own, mine))
        return lanes


class _Lane(NamedTuple):
    label: str
    kind: str
    height: int
    events: Sequence[HistoryEvent]
    bars: Sequence[tuple[float, float]]
    """The times for which it ran."""


def _find_bars(
    events: Sequence[HistoryEvent],
    opening: str,
    closing: Sequence[str],
    end: float,
    *,
    is_running: bool = False,
) -> list[tuple[float, float]]:
    """Return the times between events of the kind `opening` and of one of the kinds `closing`."""
    bars: list[tuple[float, float]] = []
    began = 0.0 if is_running else None
    for event in events:
        if event.kind == opening and began is None:
            began = event.at
        elif event.kind in closing and began is not None:
            bars.append((began, event.at))
            began = None
    return bars if began is None else [*bars, (began, end)]


def _draw_axis(axis: _Axis, bottom: float) -> list[str]:
    """Return the ticks of the axis, and the gray boxes of its short times."""
    parts = []
    for second in axis.list_ticks():
        x = axis.find_x(second)
        parts.append(f'<line class="axis" x1="{x:.1f}" y1="34" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(f'<text class="small" x="{x:.1f}" y="{bottom + 14}">{second} s</text>')
    for began, ended in axis.gaps:
        x, width = axis.find_x(began), axis.find_x(ended) - axis.find_x(began)
        parts.append(
            f'<rect class="gap" x="{x:.1f}" y="34" width="{width:.1f}" height="{bottom - 34}">'
            f"<title>nothing for {ended - began:.0f} s</title></rect>"
        )
        parts.append(
            f'<text class="small" x="{x + width / 2 - 14:.1f}" y="{bottom + 26}">'
            f"{ended - began:.0f} s</text>"
        )
    return parts


def _draw_lane(lane: _Lane, y: float, axis: _Axis, end: float) -> list[str]:
    """Return the shapes of one lane: bars while something runs, and a mark for each event."""
    last = axis.find_x(end)
    style = ' class="small"' if lane.kind == "task" else ""
    half = lane.height / 2 - 8 if lane.kind != "task" else 7
    parts = [
        f'<text{style} x="10" y="{y + 4:.1f}" xml:space="preserve">{escape(lane.label)}</text>',
        f'<line class="lane" x1="{_LEFT}" y1="{y}" x2="{last:.1f}" y2="{y}"/>',
    ]
    for began, ended in lane.bars:
        x, width = axis.find_x(began), max(2.0, axis.find_x(ended) - axis.find_x(began))
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{y - half:.1f}" height="{2 * half:.1f}" rx="3" '
            f'width="{width:.1f}"><title>{began:.3f} to {ended:.3f} s</title></rect>'
        )
    labels_end = [0.0, 0.0]
    for event in lane.events:
        x = axis.find_x(event.at)
        color = _COLORS["fault" if lane.kind == "fault" else event.kind]
        parts.append(
            f'<rect x="{x - 1:.1f}" y="{y - 7:.1f}" width="2" height="14" fill="{color}">'
            f"<title>{event.at:.3f} s: {escape(event.text)}</title></rect>"
        )
        if lane.kind == "fault":
            # A label may be above or below the line, where there is room.
            side = next((i for i in (0, 1) if x >= labels_end[i]), None)
            if side is not None:
                dy = -9 if side == 0 else 17
                label = escape(event.kind)
                parts.append(f'<text class="small" x="{x:.1f}" y="{y + dy:.1f}">{label}</text>')
                labels_end[side] = x + 6.0 * len(event.kind) + 4
    return parts


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
