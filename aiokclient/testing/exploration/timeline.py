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
    ".small{font-size:10px;fill:#555}rect.back{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#eee}.small{fill:#aaa}rect.back{fill:#1b1b1f}"
    ".axis{stroke:#555}.lane{stroke:#333}}"
)


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
        span = max(self._end, 1.0)
        scale = (_WIDTH - _LEFT - 30) / span
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" role="img">',
            f"<style>{_STYLE}</style>",
            f'<rect class="back" width="{_WIDTH}" height="{height}"/>',
            f"<title>{escape(self._verdict)}</title>",
            f'<text x="10" y="20">{escape(_shorten(self._verdict, 160))}</text>',
        ]
        step = next((each for each in (1, 2, 5, 10, 20, 50, 100) if span / each <= 12), 200)
        bottom = 40 + _ROW * len(tracks)
        for tick in range(0, int(span) + 1, step):
            x = _LEFT + tick * scale
            parts.append(f'<line class="axis" x1="{x:.1f}" y1="34" x2="{x:.1f}" y2="{bottom}"/>')
            parts.append(f'<text class="small" x="{x:.1f}" y="{bottom + 14}">{tick} s</text>')
        for row, track in enumerate(tracks):
            y = 40 + _ROW * row + _ROW / 2
            name = {"fault": "faults", "broker": "brokers"}.get(track, track)
            parts.append(f'<text x="10" y="{y + 4:.1f}">{escape(name)}</text>')
            parts += self._draw_lane(track, y, scale)
        legend = " ".join(
            f'<tspan fill="{_COLORS[kind]}">&#9632;</tspan> <tspan>{kind}</tspan>&#160;&#160;'
            for kind in ("fault", "handled", "commit", "produce", "error", "kill")
        )
        parts.append(f'<text class="small" x="{_LEFT}" y="{height - 10}">{legend}</text>')
        parts.append("</svg>")
        return "\n".join(parts)

    def _draw_lane(self, track: str, y: float, scale: float) -> list[str]:
        """Return the shapes of one track: a bar while an instance runs, and a mark for events."""
        parts = []
        events = [each for each in self.events if each.track == track]
        if track in ("fault", "broker"):
            end = _LEFT + self._end * scale
            parts.append(f'<line class="lane" x1="{_LEFT}" y1="{y}" x2="{end:.1f}" y2="{y}"/>')
        else:
            began = min((e.at for e in events if e.kind == "start"), default=0.0)
            ended = max((e.at for e in events if e.kind in ("end", "kill")), default=self._end)
            parts.append(
                f'<rect x="{_LEFT + began * scale:.1f}" y="{y - 9:.1f}" height="18" rx="3" '
                f'width="{max(2.0, (ended - began) * scale):.1f}" fill="#90a4ae" opacity="0.35"/>'
            )
        labels_end = [0.0, 0.0]
        for event in events:
            x = _LEFT + event.at * scale
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
