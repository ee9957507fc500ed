"""How much CPU time does it take to produce and to consume a message over TLS?

Every client does the same as in the benchmarks of producing and consuming, with the same settings,
over TLS (SSL) and over TLS with a login by SCRAM-SHA-512 (SASL_SSL). A broker is started for this
benchmark, because an existing cluster may not have such listeners. All clients verify its
certificate and its host name. A column titled with the name of a client and "÷" shows by what
factor the client of the row takes less CPU time than the client in the title.

    python benchmarks/tls.py [--count N] [--runs N] [--cases ...]
"""

import sys
from collections.abc import Sequence

import consume
import produce
from measuring import options
from measuring.brokers import Brokers
from measuring.comparison import FEWER, SAME, Case, Found, side_by_side
from measuring.options import Options
from measuring.report import Report
from measuring.runner import Job, rounds
from measuring.secured import SCRAM, Login, SecuredBrokers, secured
from measuring.spec import Spec
from measuring.subject import Subject
from subjects import aio_kafka, confluent, own, programs

COUNT = produce.COUNT
CONSUMED = consume.COUNT // produce.COUNT
"""Number of consumed messages for each produced message, as in consume.py and produce.py."""
CASES = (Case("100 B"), Case("1 KB", size=1_000, part=0.25))
PROTOCOLS = (Login("SSL"), Login("SASL_SSL", SCRAM[1]))
PRODUCERS = (
    *(own.AsWritten(), own.GatherAsWritten()),
    *(own.Gather(), own.SendMany(), own.GatherUvloop()),
    *(confluent.Callbacks(), aio_kafka.Send(), programs.FranzGo("franz-go")),
)
CONSUMERS = (
    *(own.Lists(), own.AsyncFor(), own.ListsUvloop()),
    *(confluent.Consume(), aio_kafka.Getmany(), programs.FranzGo("franz-go")),
)
PRODUCING_PEERS = ("confluent-kafka callbacks", "aiokafka send, await each", "franz-go")
CONSUMING_PEERS = ("confluent-kafka consume(5000)", "aiokafka getmany", "franz-go")


def jobs_of(
    subjects: Sequence[Subject], spec: Spec, login: Login, brokers: SecuredBrokers
) -> list[Job]:
    return [Job(subject, brokers.over(spec, login), SAME) for subject in subjects]


def measure(given: Options, _: Brokers) -> Report:
    report = Report(__doc__)

    def add(work: str, found: Found, peers: Sequence[str], note: str) -> None:
        title = work[0].upper() + work[1:]
        report.add(work, found, side_by_side(title, found, peers, (FEWER, note)))

    with secured() as brokers:
        topics = consume.Topics(brokers)
        for case in (each for each in CASES if given.wanted(each.name)):
            for login in PROTOCOLS:
                spec = produce.spec_of(case, given.count, brokers, SAME)
                jobs = jobs_of(given.chosen(PRODUCERS), spec, login, brokers)
                found = rounds(jobs, given.runs, lambda job: produce.execute(job, brokers))
                work = f"produce {case.name} over {login.protocol}"
                add(work, found, PRODUCING_PEERS, produce.NOTES[1])
            for login in PROTOCOLS:
                spec = consume.spec_of(case, CONSUMED * given.count, brokers)
                jobs = jobs_of(given.chosen(CONSUMERS), spec, login, brokers)
                found = rounds(jobs, given.runs, lambda job: consume.execute(job, brokers, topics))
                work = f"consume {case.name} over {login.protocol}"
                add(work, found, CONSUMING_PEERS, consume.NOTES[1])
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__), kafka=False))
