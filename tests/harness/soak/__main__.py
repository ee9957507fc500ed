"""The command line: ``python -m soak --minutes 10 --seed 7 --break A --log FILE``."""

import argparse
import asyncio
import logging
import random
import sys

from ledger import BrokenInvariantError

from .run import Settings, Soak, say, soak
from .sabotage import CHANGES
from .schedule import as_text


def show_brokers(run: Soak) -> None:
    """Print the ends of the brokers' logs."""
    for number, node in run.site.cluster.nodes.items():
        say(f"--- log of node {number}\n{node.tail(limit=1500)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, help="the seed of the faults; random by default")
    parser.add_argument("--break", dest="sabotage", default="", choices=["", *CHANGES, "H"])
    parser.add_argument("--log", help="a file for the log of the library")
    parser.add_argument("--plan", action="store_true", help="print the faults and do nothing")
    given = parser.parse_args()
    seed = random.randrange(1, 1_000_000) if given.seed is None else given.seed
    settings = Settings(given.minutes, seed, given.sabotage)
    if given.plan:
        say("\n".join(filter(None, map(as_text, settings.faults()))))
        return 0
    if given.log:
        handler = logging.FileHandler(given.log)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        logging.getLogger("aiokclient").addHandler(handler)
    try:
        asyncio.run(soak(settings, show_brokers))
    except BrokenInvariantError as error:
        say(f"seed {seed}: {error}")
        return 1
    say(f"seed {seed}: all promises were kept")
    return 0


if __name__ == "__main__":
    sys.exit(main())
