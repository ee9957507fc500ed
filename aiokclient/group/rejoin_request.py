"""The request for the next generation, or for another assignment in the present one."""

from __future__ import annotations

__all__ = ["RejoinRequest"]


class RejoinRequest:
    """The request of a member that joins again, with a reason, which the brokers log (KIP-800).

    `reason` is None if there is no request. `new_generation` is true if JoinGroup must lead to a
    new generation, and `reassigns` if the leader must call `assign` again.
    """

    __slots__ = ("new_generation", "reason", "reassigns")

    def __init__(self) -> None:
        self.reason: str | None = None
        self.new_generation = False
        self.reassigns = False

    def add(self, reason: str | None, *, new_generation: bool = False) -> None:
        """Request to join again. A reason that is already set remains."""
        self.reason = self.reason or reason
        self.new_generation = self.new_generation or new_generation

    def add_assignment(self, reason: str) -> None:
        """Request another assignment by the leader. A reason that is already set remains."""
        self.reason = self.reason or reason
        self.reassigns = True

    def replace_reason(self, reason: str) -> None:
        """Set the reason, and replace any earlier one."""
        self.reason = reason

    def take(self) -> tuple[str | None, bool]:
        """Remove and return the reason, and whether a new generation was requested."""
        taken = self.reason, self.new_generation
        self.reason, self.new_generation = None, False
        return taken

    def take_assignment(self) -> bool:
        """Remove the request for another assignment, and return whether there was one."""
        taken, self.reassigns = self.reassigns, False
        return taken

    def served(self) -> None:
        """Remove the reason, because the member rejoins."""
        self.reason = None
