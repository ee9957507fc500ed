"""Tests of the brokers' assignors in the same random groups here and in Kafka.

Members join, change their subscriptions, and leave. `range` gives identical results. `uniform` is
never less balanced, and moves no more partitions where all members have the same subscription.
"""

import random
from typing import NamedTuple

import pytest
from kip848_raw import Group

SIZES = (5, 4, 7)
SEEDS = range(6)


class Step(NamedTuple):
    """The state after one change.

    `has` has the partitions of each member. `moved` counts the partitions that moved between
    members which stayed in the group.
    """

    has: dict[str, list[tuple[int, int]]]
    moved: int

    @property
    def spread(self) -> int:
        return sum(len(each) ** 2 for each in self.has.values())


class Play:
    """A random history of one group."""

    def __init__(self, broker, seed, assignor, *, alike):
        self.group = Group(broker, *SIZES)
        self.rng, self.assignor, self.alike = random.Random(seed), assignor, alike
        self.epochs, self.owned = {}, {}
        self.steps = []

    def run(self):
        for number in range(4):
            self._note(f"m{number}", 0)
        for _ in range(2):
            self._note(self.rng.choice(sorted(self.epochs)), None)
        gone = self.rng.choice(sorted(self.epochs))
        del self.epochs[gone], self.owned[gone]
        assert self.group.beat(gone, -1).code == "ok"
        self._settle()
        return self.steps

    def _names(self):
        names = self.group.names
        if self.alike:
            return names
        return sorted(self.rng.sample(names, self.rng.randint(1, len(names))), key=names.index)

    def _note(self, member, epoch):
        """Join a member, or change its subscription, and record its assignment."""
        if epoch == 0:
            answer = self.group.join(member, self._names(), server_assignor=self.assignor)
            self.owned[member] = {}
        else:
            answer = self.group.beat(
                member, self.epochs[member], subscribed_topic_names=self._names()
            )
        self._take(member, answer)
        self._settle()

    def _take(self, member, answer):
        assert answer.code == "ok"
        self.epochs[member] = answer.epoch
        if answer.given is not None:
            self.owned[member] = dict(answer.given)

    def _settle(self):
        def round_of_beats():
            before = (dict(self.epochs), dict(self.owned))
            for member, epoch in list(self.epochs.items()):
                self._take(member, self.group.beat(member, epoch, owned=self.owned[member]))
            return before == (self.epochs, self.owned) and len(set(self.epochs.values())) == 1

        self.group.until(round_of_beats)
        has = {
            member: sorted((topic, index) for topic in owned for index in owned[topic])
            for member, owned in self.owned.items()
        }
        before = self.steps[-1].has if self.steps else {}
        stayed = before.keys() & has.keys()
        moved = sum(
            tp in before[member] and tp not in has[member]
            for member in sorted(stayed)
            for tp in before[member]
        )
        self.steps.append(Step(has, moved))


def played(parity, seed, assignor, *, alike):
    """Return the steps in the embedded cluster and those in Kafka."""
    found = []

    def scenario(broker):
        found.append(Play(broker, seed, assignor, alike=alike).run())

    parity(scenario)
    return found


@pytest.mark.kafka
@pytest.mark.parametrize("seed", SEEDS)
def test_range_gives_the_same_result_as_kafka(parity, seed):
    ours, theirs = played(parity, seed, "range", alike=seed % 2 == 0)
    assert [each.has for each in ours] == [each.has for each in theirs]


@pytest.mark.kafka
@pytest.mark.parametrize("seed", SEEDS)
def test_uniform_is_as_good_as_kafkas_for_equal_subscriptions(parity, seed):
    ours, theirs = played(parity, seed, "uniform", alike=True)
    assert [each.spread for each in ours] == [each.spread for each in theirs]
    assert sum(each.moved for each in ours) <= sum(each.moved for each in theirs)


@pytest.mark.kafka
@pytest.mark.parametrize("seed", SEEDS)
def test_uniform_is_as_balanced_as_kafkas_for_different_subscriptions(parity, seed):
    ours, theirs = played(parity, seed, "uniform", alike=False)
    assert all(a.spread <= b.spread for a, b in zip(ours, theirs, strict=True))
