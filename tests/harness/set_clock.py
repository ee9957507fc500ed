"""A clock for synchronous tests, whose time is set."""


class SetClock:
    """The part of a `Clock` that states without IO use. `now` is its time in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now
