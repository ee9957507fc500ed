"""``python tests/harness fetch`` and ``python tests/harness start``: see kafka_harness.cli."""

from kafka_harness.cli import main

raise SystemExit(main())
