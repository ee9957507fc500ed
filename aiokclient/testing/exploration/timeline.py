"""The timeline of a run: its events over virtual time, as text and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from aiokclient.testing.exploration.history import HistoryEvent
from aiokclient.types import public_in

_SHOWN: Final = 60
_WIDTH: Final = 1100
_LEFT: Final = 130
_ROW: Final = 34
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
}
_KINDS: Final = ("handled", "commit", "produce")
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#222}.axis{stroke:#bbb}.lane{stroke:#ddd}"
    ".gap{fill:#888;opacity:.18}"
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

    def __init__(self, events: Sequence[HistoryEvent], verdict: str, end: float) -> None:
        self.events = list(events)
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
        """Return a picture: faults, instances of the service, and brokers over virtual time."""
        tracks = ["fault", *sorted({e.track for e in self.events} - {"fault", "broker"}), "broker"]
        height = 60 + _ROW * len(tracks) + 50
        axis = _Axis([each.at for each in self.events], self._end)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" role="img">',
            f"<style>{_STYLE}</style>",
            f'<rect class="back" width="{_WIDTH}" height="{height}"/>',
            f"<title>{escape(self._verdict)}</title>",
            f'<text x="10" y="20">{escape(_shorten(self._verdict, 160))}</text>',
        ]
        bottom = 40 + _ROW * len(tracks)
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
        for row, track in enumerate(tracks):
            y = 40 + _ROW * row + _ROW / 2
            name = {"fault": "faults", "broker": "brokers"}.get(track, track)
            parts.append(f'<text x="10" y="{y + 4:.1f}">{escape(name)}</text>')
            parts += self._draw_lane(track, y, axis)
        legend = " ".join(
            f'<tspan fill="{_COLORS[kind]}">&#9632;</tspan> <tspan>{kind}</tspan>&#160;&#160;'
            for kind in ("fault", "handled", "commit", "produce", "error", "kill")
        )
        parts.append(f'<text class="small" x="{_LEFT}" y="{height - 10}">{legend}</text>')
        parts.append("</svg>")
        return "\n".join(parts)

    def _draw_lane(self, track: str, y: float, axis: _Axis) -> list[str]:
        """Return the shapes of one track: a bar while an instance runs, and a mark for events."""
        parts = []
        events = [each for each in self.events if each.track == track]
        if track in ("fault", "broker"):
            end = axis.find_x(self._end)
            parts.append(f'<line class="lane" x1="{_LEFT}" y1="{y}" x2="{end:.1f}" y2="{y}"/>')
        else:
            began = min((e.at for e in events if e.kind == "start"), default=0.0)
            ended = max((e.at for e in events if e.kind in ("end", "kill")), default=self._end)
            parts.append(
                f'<rect x="{axis.find_x(began):.1f}" y="{y - 9:.1f}" height="18" rx="3" '
                f'width="{max(2.0, axis.find_x(ended) - axis.find_x(began)):.1f}" '
                f'fill="#90a4ae" opacity="0.35"/>'
            )
        labels_end = [0.0, 0.0]
        for event in events:
            x = axis.find_x(event.at)
            color = _COLORS["fault" if track == "fault" else event.kind]
            parts.append(
                f'<rect x="{x - 1:.1f}" y="{y - 7:.1f}" width="2" height="14" fill="{color}">'
                f"<title>{event.at:.3f} s: {escape(event.text)}</title></rect>"
            )
            if track == "fault":
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
