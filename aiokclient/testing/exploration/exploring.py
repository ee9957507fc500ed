"""`explore`: runs of a service with the faults of many seeds, until one breaks an invariant.

The first seed that fails is shrunk: faults are left out, then made simpler, as long as the same
invariant fails. What remains is raised as a `CounterexampleError`, with a test that repeats it.
"""

from __future__ import annotations

import ast
import gc
import inspect
import logging
import random
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

from aiokclient.testing.exploration.faults import (
    ALL_FAULTS,
    FAULTS_S,
    ServiceFault,
    draw_faults,
)
from aiokclient.testing.exploration.invariants import ALL_INVARIANTS, Invariant
from aiokclient.testing.exploration.running import RECOVERY_S, Feed, Service, ServiceRun
from aiokclient.testing.exploration.timeline import Timeline
from aiokclient.testing.simulation.loop import SimulationError
from aiokclient.testing.simulation.simulation import Simulation
from aiokclient.types import public_in

FaultLike = type[ServiceFault] | ServiceFault
_MOST_SHIFTS: Final = 80
_FEW: Final = 3
_FEW_SHIFTS: Final = 15
"""The most of these runs if there are few faults already."""
_MOST_RUNS: Final = 200
"""The most runs for shrinking one counterexample."""
_COLLECT_AFTER: Final = 20_000
"""The number of new objects after which garbage is collected."""
_SERVICE: Final = "the service"
_LOOP: Final = "the event loop"


@public_in("aiokclient.testing")
class Report:
    """The result of `explore` if no seed has failed.

    seeds: The number of seeds that were run.
    coverage: For each class of faults, how often it met each phase of the service.
    virtual_s: The seconds of virtual time of all runs.
    """

    def __init__(self, seeds: int, coverage: Mapping[str, Mapping[str, int]], virtual_s: float):
        self.seeds, self.coverage, self.virtual_s = seeds, coverage, virtual_s

    def __str__(self) -> str:
        """Return the coverage as a table."""
        phases = sorted({phase for each in self.coverage.values() for phase in each})
        width = max((len(name) for name in self.coverage), default=0)
        head = " " * width + "".join(f"  {phase}" for phase in phases)
        rows = [
            f"{name:<{width}}" + "".join(f"  {each.get(p, 0) or '-':>{len(p)}}" for p in phases)
            for name, each in sorted(self.coverage.items())
        ]
        title = (
            f"{self.seeds} seeds passed, {self.virtual_s:.0f} s of virtual time. Faults by phase:"
        )
        return "\n".join([title, head, *rows])


@public_in("aiokclient.testing")
class CounterexampleError(AssertionError):
    """A run in which an invariant did not hold.

    seed: The seed of the run.
    invariant: The name of the invariant, "the service" if it raised an AssertionError, or "the
        event loop" if the program was deadlocked, spun, or reached `limit_s`.
    faults: The faults that are left after shrinking, in the order of their times.
    timeline: What happened. `str(timeline)` is text, and `timeline.svg()` a picture.
    test: A test that repeats the run, as Python.
    """

    def __init__(
        self,
        text: str,
        *,
        seed: int,
        invariant: str,
        faults: Sequence[ServiceFault],
        timeline: Timeline,
        test: str,
    ) -> None:
        super().__init__(text)
        self.seed, self.invariant, self.faults = seed, invariant, list(faults)
        self.timeline, self.test = timeline, test

    def __str__(self) -> str:
        return (
            f"{self.invariant}: {self.args[0]} (seed {self.seed}, {len(self.faults)} faults)\n\n"
            f"{self.timeline}\n\nThis test repeats it:\n\n{self.test}"
        )


class _Failure(NamedTuple):
    invariant: str
    text: str


class _Outcome(NamedTuple):
    failure: _Failure | None
    timeline: Timeline
    coverage: Counter[tuple[str, str]]
    virtual_s: float


class _Exploration:
    """The arguments of one call of `explore`."""

    def __init__(
        self,
        service: Service,
        brokers: int,
        topics: Mapping[str, int | Feed],
        faults: Sequence[FaultLike],
        invariants: Sequence[Invariant],
        limit_s: float,
        recovery_s: float,
        patch_clocks: bool,
    ) -> None:
        self.service, self.brokers, self.topics = service, brokers, topics
        self.faults, self.invariants = faults, invariants
        self.limit_s, self.recovery_s, self.patch_clocks = limit_s, recovery_s, patch_clocks

    def run_seed(self, seed: int, faults: Sequence[ServiceFault]) -> _Outcome:
        """Run the service once with these faults, and check the invariants."""
        sim = Simulation(seed, limit_s=self.limit_s, patch_clocks=self.patch_clocks)
        runs: list[ServiceRun] = []
        failure: _Failure | None = None
        try:
            failure = sim.run(lambda sim: self._execute(sim, faults, runs))
        except SimulationError as error:
            failure = _Failure(_LOOP, str(error))
        except AssertionError as error:
            failure = _Failure(_SERVICE, str(error) or repr(error))
        virtual_s = sim.loop.time()
        verdict = "all invariants hold" if failure is None else ": ".join(failure)
        timeline = Timeline(sim.history, verdict.splitlines()[0], virtual_s)
        coverage = runs[0].coverage if runs else Counter[tuple[str, str]]()
        return _Outcome(failure, timeline, coverage, virtual_s)

    async def _execute(
        self, sim: Simulation, faults: Sequence[ServiceFault], runs: list[ServiceRun]
    ) -> _Failure | None:
        sizes = {
            name: each.partitions if isinstance(each, Feed) else each
            for name, each in self.topics.items()
        }
        async with sim.cluster(brokers=self.brokers, topics=sizes):
            sim.history.brokers = self.brokers
            run = ServiceRun(self.service, sim, self.topics, faults, self.recovery_s)
            runs.append(run)
            await run.execute()
            for invariant in self.invariants:
                try:
                    invariant(sim)
                except AssertionError as error:
                    name = getattr(invariant, "__name__", repr(invariant))
                    return _Failure(name, str(error) or repr(error))
        return None

    # -- shrinking -----------------------------------------------------------------------------

    def shrink(
        self, seed: int, faults: Sequence[ServiceFault], outcome: _Outcome
    ) -> tuple[list[ServiceFault], _Outcome]:
        """Return the fewest faults with which the same invariant fails, and the outcome."""
        assert outcome.failure is not None
        wanted = outcome.failure.invariant
        best, runs = list(faults), 0

        def fails(chosen: Sequence[ServiceFault]) -> bool:
            nonlocal runs, outcome
            runs += 1
            found = self.run_seed(seed, chosen)
            if found.failure is None or found.failure.invariant != wanted:
                return False
            outcome = found
            return True

        def leave_out() -> None:
            nonlocal best
            size = len(best)
            while size and runs < _MOST_RUNS:
                for start in range(0, len(best), size):
                    left = best[:start] + best[start + size :]
                    if fails(left):
                        best = left
                        break
                else:
                    size //= 2
                    continue
                size = min(size, len(best))

        leave_out()
        rng = random.Random(f"{seed} shrinking")
        for shift in range(_MOST_SHIFTS):
            if len(best) < 2 or runs >= _MOST_RUNS or (len(best) <= _FEW and shift >= _FEW_SHIFTS):
                break
            # Fewer faults at other times may break the same invariant.
            chosen = rng.sample(best, min(rng.choice((1, 1, 2)), len(best) - 1))
            shifted = [replace(each, at=round(rng.uniform(0.0, FAULTS_S), 1)) for each in chosen]
            shifted.sort(key=lambda each: each.at)
            if fails(shifted):
                best = shifted
                leave_out()
        for index, fault in enumerate(best):
            for simpler in _simplify(fault):
                changed = [*best[:index], simpler, *best[index + 1 :]]
                if runs < _MOST_RUNS and fails(changed):
                    best = changed
                    break
        return best, outcome

    def make_error(
        self, seed: int, faults: Sequence[ServiceFault], outcome: _Outcome
    ) -> CounterexampleError:
        assert outcome.failure is not None
        invariant, text = outcome.failure
        chosen = [each for each in self.invariants if getattr(each, "__name__", "") == invariant]
        test = self._write_test(seed, faults, chosen)
        return CounterexampleError(
            text,
            seed=seed,
            invariant=invariant,
            faults=faults,
            timeline=outcome.timeline,
            test=test,
        )

    def _write_test(
        self, seed: int, faults: Sequence[ServiceFault], invariants: Sequence[Invariant]
    ) -> str:
        """Return a test that repeats a run, as Python."""
        names = {"explore", *(type(each).__name__ for each in faults)}
        if any(isinstance(each, Feed) for each in self.topics.values()):
            names.add("Feed")
        imports: list[str] = []
        written = [_write_function(each, names, imports) for each in invariants]
        service = _write_function(self.service, names, imports)
        topics = {name: _write_topic(each, names, imports) for name, each in self.topics.items()}
        arguments = [
            service,
            "seeds=1",
            f"first_seed={seed}",
            f"brokers={self.brokers}",
            "topics={" + ", ".join(f"{name!r}: {each}" for name, each in topics.items()) + "}",
            f"faults=[{', '.join(map(repr, faults))}]",
            f"invariants=[{', '.join(written)}]",
            f"limit_s={self.limit_s!r}",
        ]
        if self.recovery_s != RECOVERY_S:
            arguments.append(f"recovery_s={self.recovery_s!r}")
        if self.patch_clocks:
            arguments.append("patch_clocks=True")
        imports += [f"from aiokclient.testing import {name}\n" for name in names]
        body = "".join(f"        {each},\n" for each in arguments)
        return (
            f"{_sort_imports(imports)}\n\ndef test_seed_{seed}() -> None:\n"
            f"    explore(\n{body}    )\n"
        )


def _sort_imports(imports: list[str]) -> str:
    """Return imports and sources with the imports first, one line for each module."""
    names: dict[str, list[str]] = {}
    for line in sorted({each for each in imports if each.startswith("from ")}):
        module, name = line.removeprefix("from ").strip().split(" import ")
        names.setdefault(module, []).append(name)
    modules = sorted(each for each in imports if each.startswith("import "))
    modules += [f"from {module} import {', '.join(each)}\n" for module, each in names.items()]
    return "".join(modules + [x for x in imports if not x.startswith(("import ", "from "))])


def _write_import(module: str, name: str, value: Any) -> str:
    """Return the import of a name from the outermost package that has it: the public one."""
    parts = module.split(".")
    for count in range(1, len(parts)):
        package = sys.modules.get(".".join(parts[:count]))
        if getattr(package, name, None) is value:
            return f"from {'.'.join(parts[:count])} import {name}\n"
    return f"from {module} import {name}\n"


def _write_topic(topic: int | Feed, names: set[str], imports: list[str]) -> str:
    if not isinstance(topic, Feed):
        return repr(topic)
    values = [
        f"{each.name}={getattr(topic, each.name)!r}"
        for each in fields(topic)
        if each.name != "value" and getattr(topic, each.name) != each.default
    ]
    if topic.value is not None:
        values.append(f"value={_write_function(topic.value, names, imports)}")
    return f"Feed({', '.join(values)})"


def _write_function(function: Callable[..., Any], names: set[str], imports: list[str]) -> str:
    """Return an expression for a function, and add the imports or the source that it needs."""
    module = getattr(function, "__module__", "")
    name = getattr(function, "__qualname__", repr(function))
    if module.startswith("aiokclient.testing."):
        names.add(name.partition("(")[0])
        return name
    if name.isidentifier() and module != "__main__":
        line = _write_import(module, name, function)
        if line not in imports:
            imports.insert(0, line)
        return name
    # It cannot be imported: it is in a script, or inside of another function.
    name = getattr(function, "__name__", name)
    try:
        source = "\n\n" + textwrap.dedent(inspect.getsource(function))
        used = _find_used(function, source)
    except (OSError, TypeError, SyntaxError):
        source, used = f"# Define {name} here, as {module} does.\n", {}
    if source not in imports:
        imports.append(source)
        for each, value in used.items():
            _write_global(each, value, names, imports)
    return name


def _find_used(function: Callable[..., Any], source: str) -> dict[str, Any]:
    """Return the values of the names of other scopes that the source of a function has."""
    found = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    outside = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    return {each: outside[each] for each in sorted(found) if each in outside}


def _write_global(name: str, value: Any, names: set[str], imports: list[str]) -> None:
    """Add what a function needs to have this global name."""
    module = getattr(value, "__module__", None) or ""
    if inspect.ismodule(value):
        line = f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}") + "\n"
    elif module.startswith("aiokclient.testing.") or module == "aiokclient.testing":
        names.add(name)
        return
    elif module not in ("", "__main__") and getattr(value, "__qualname__", "") == name:
        line = _write_import(module, name, value)
    elif inspect.isfunction(value):
        _write_function(value, names, imports)
        return
    elif inspect.isclass(value):
        try:
            line = "\n\n" + textwrap.dedent(inspect.getsource(value))
        except (OSError, TypeError):
            line = f"# Define {name} here.\n"
    else:
        line = f"{name} = {value!r}\n"
    if line not in imports:
        imports.insert(0, line)


def _simplify(fault: ServiceFault) -> Iterator[ServiceFault]:
    """Yield variants of a fault that say less."""
    if fault.after:
        yield replace(fault, after="", delay=0.0)
    changed: dict[str, Any] = {
        each.name: each.default
        for each in fields(fault)
        if each.name not in ("at", "after", "delay") and getattr(fault, each.name) != each.default
    }
    if changed:
        yield replace(fault, **changed)
    yield replace(fault, at=round(fault.at, 1))


@contextmanager
def _without_logs() -> Iterator[None]:
    """Log nothing within the block: each of a thousand runs would log its faults."""
    former = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(former)


@contextmanager
def _collect_rarely() -> Iterator[None]:
    """Collect garbage less often within the block, and nothing that existed before it.

    A run makes thousands of objects that end with it. Their collection would take an eighth of its
    time.
    """
    thresholds, is_frozen = gc.get_threshold(), gc.get_freeze_count() > 0
    if not is_frozen:
        gc.freeze()
    if thresholds[0]:  # Otherwise the program has switched it off.
        gc.set_threshold(max(thresholds[0], _COLLECT_AFTER), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not is_frozen:
            gc.unfreeze()


@contextmanager
def _keep_filters() -> Iterator[None]:
    """Restore the filters of warnings after the block, to which killed processes add some.

    If they did so, what is left of them is collected before.
    """
    with warnings.catch_warnings():
        former = list(warnings.filters)
        try:
            yield
        finally:
            if warnings.filters != former:
                gc.collect()


def explore(
    service: Service,
    *,
    seeds: int = 1000,
    first_seed: int = 0,
    brokers: int = 3,
    topics: Mapping[str, int | Feed] | None = None,
    faults: Sequence[FaultLike] = ALL_FAULTS,
    invariants: Sequence[Invariant] = ALL_INVARIANTS,
    limit_s: float = 600.0,
    recovery_s: float = RECOVERY_S,
    patch_clocks: bool = False,
) -> Report:
    """Run a service under faults in virtual time, once for each seed, and check invariants.

    `service(sim)` is a coroutine function. It is called for each seed, and again after a restart;
    `sim.state` keeps what outlives it. Its clients take `bootstrap_servers=sim.bootstrap_servers`
    and `**sim.options`. It calls `sim.handled(record)`, or uses `with sim.handling(record):`, for
    what it has done.

    seeds: The number of seeds, from `first_seed` on.
    brokers: The number of brokers of each run.
    topics: The topics: a number of partitions, or a `Feed` of records that the service reads.
    faults: Classes of faults, of which each seed draws some, and faults that each seed has.
    invariants: Functions of the simulation that raise AssertionError after a run.
    limit_s: The most seconds of virtual time for a run. A run takes about 20, or up to 160 if the
        service does not recover.
    recovery_s: The seconds that the service has after the faults to handle all records.
    patch_clocks: Whether the functions of the module `time` have virtual time, too.

    Raises CounterexampleError for the first seed with which an invariant does not hold, or in
    which the service raises AssertionError; other exceptions of the service restart it, as a
    supervisor does. Raises IllegalStateError in a thread that runs an event loop. Logs are off
    meanwhile.
    """
    exploration = _Exploration(
        service,
        brokers,
        dict(topics or {}),
        faults,
        invariants,
        limit_s,
        recovery_s,
        patch_clocks,
    )
    coverage: dict[str, Counter[str]] = {}
    virtual_s = 0.0
    with _without_logs(), _collect_rarely(), _keep_filters():
        for seed in range(first_seed, first_seed + seeds):
            drawn = draw_faults(seed, faults, brokers)
            outcome = exploration.run_seed(seed, drawn)
            if outcome.failure is not None:
                fewest, outcome = exploration.shrink(seed, drawn, outcome)
                raise exploration.make_error(seed, fewest, outcome)
            virtual_s += outcome.virtual_s
            for (fault, phase), count in outcome.coverage.items():
                coverage.setdefault(fault, Counter())[phase] += count
    return Report(seeds, coverage, virtual_s)
