"""Controls of the embedded cluster that act on leaders, replicas, coordinators, and logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokclient.testing.controls.base import Controls


class LeaderControls(Controls):
    """Controls that move leaders and coordinators, hold replication, and truncate logs."""

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of the broker that leads a partition, or -1 if there is none."""
        return self._runner.call_in_loop(lambda: self.find_partition(topic, partition).leader)

    def leader_epoch(self, topic: str, partition: int = 0) -> int:
        """Return the leader epoch of a partition, which increases with each election."""
        return self._runner.call_in_loop(lambda: self.find_partition(topic, partition).leader_epoch)

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """Return the broker ids of the in-sync replicas."""
        return self._runner.call_in_loop(lambda: list(self.find_partition(topic, partition).isr))

    def replicas(self, topic: str, partition: int = 0) -> list[int]:
        """Return the ids of the brokers that have a replica, the preferred leader first."""
        return self._runner.call_in_loop(
            lambda: list(self.find_partition(topic, partition).replicas)
        )

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Make another broker the leader, and return its id.

        The default is the next replica whose broker is running. A broker without a replica gets
        one. If the new leader's replica lags, the log is truncated to the end of that replica, as
        in an unclean election.
        """

        def change_leader() -> int:
            found = self.find_partition(topic, partition)
            alive = self._state.alive
            target = to
            if target is None:
                choices = [each for each in found.replicas if each in alive]
                target = next((each for each in choices if each != found.leader), None)
            if target is None:
                raise ValueError(f"{found!r} has no other replica whose broker is running.")
            if target not in alive:
                raise ValueError(f"{found!r} cannot be led by {target}: no such broker is running.")
            if target not in found.replicas:
                found.replicas.append(target)
            if target != found.leader:
                found.change_leader(target)
                self._state.settle_partition(found)
                self._state.notify_tests()
            return target

        return self._runner.call_in_loop(change_leader)

    def bump_epoch(self, topic: str, partition: int = 0) -> int:
        """Elect the current leader again, and return the new leader epoch."""

        def elect_again() -> int:
            found = self.find_partition(topic, partition)
            found.change_leader(found.leader)
            self._state.settle_partition(found)
            self._state.notify_tests()
            return found.leader_epoch

        return self._runner.call_in_loop(elect_again)

    def move_coordinator(self, key: str, to: int | None = None) -> int:
        """Move a group or a transactional id to another coordinator, and return the broker's id."""
        return self._runner.call_in_loop(lambda: self._state.move_coordinator(key, to))

    def coordinator(self, key: str) -> int:
        """Return the broker id of the coordinator of a group or transactional id; -1 for none."""

        def find_coordinator() -> int:
            found = self._state.find_coordinator(key)
            return -1 if found is None else found.node_id

        return self._runner.call_in_loop(find_coordinator)

    @contextmanager
    def hold_replication(
        self, topic: str, partition: int = 0, *, broker: int | None = None, in_sync: bool = True
    ) -> Iterator[None]:
        """Stop the replication of a partition to all followers, or to one, within the block.

        With `in_sync`, the followers remain in the ISR, so that the high watermark does not
        advance: appends with acks=all wait, and consumers see no new records. Otherwise the
        followers leave the ISR and lag.
        """

        def hold_followers() -> None:
            found = self.find_partition(topic, partition)
            for node in found.replicas:
                if node != found.leader and broker in (None, node):
                    found.hold_replica(node, in_sync=in_sync)

        def release_followers() -> None:
            found = self._state.find_partition(topic, partition)
            for node in () if found is None else found.replicas:
                if broker in (None, node) and found is not None:
                    found.release_replica(node)

        self._runner.call_in_loop(hold_followers)
        try:
            yield
        finally:
            self._runner.post_to_loop(release_followers)

    def truncate(self, topic: str, partition: int = 0, *, to: int) -> int:
        """Remove the records from offset `to` on, as in an unclean election; return the new epoch.

        Batches are removed as a whole, including the one that contains `to`.
        """

        def truncate_log() -> int:
            found = self.find_partition(topic, partition)
            found.truncate(to)
            self._state.settle_partition(found)
            self._state.notify_tests()
            return found.leader_epoch

        return self._runner.call_in_loop(truncate_log)

    def delete_records(self, topic: str, partition: int = 0, *, before: int) -> None:
        """Advance the log start offset, as DeleteRecords and retention do."""

        def delete_records_before() -> None:
            found = self.find_partition(topic, partition)
            found.delete_records(min(before, found.high_watermark))
            self._state.notify_tests()

        self._runner.call_in_loop(delete_records_before)
