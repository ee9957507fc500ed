"""A sample of calls, whose results on the embedded cluster are those of Java on three brokers.

test_calls_of_java.py compares all calls, and writes the results of Java to calls_of_java.json.
"""

from __future__ import annotations

import json
from pathlib import Path

from admin_parity.clusters import open_cluster
from admin_parity.comparing import prepare, run_ours
from admin_parity.running import find_differences, without_configs
from admin_parity.tables import SAMPLE, SCENARIOS

RECORDED = json.loads(Path(__file__).with_name("calls_of_java.json").read_text())


async def test_the_results_of_a_sample_are_those_of_java() -> None:
    assert set(RECORDED) == set(SAMPLE)
    chosen = {each.name: each for each in SCENARIOS if each.name in SAMPLE}
    found = {}
    with open_cluster("embedded") as cluster:
        await cluster.start()
        for number, (name, scenario) in enumerate(chosen.items()):
            world = cluster.world(number, "o")
            async with world.stack:
                await prepare(scenario, world)
                found[name] = without_configs(await run_ours(cluster, scenario, world))
        await cluster.close()
    assert list(find_differences(RECORDED, found)) == []
