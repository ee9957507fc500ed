"""The commands ``python tests/harness fetch`` and ``start``: see kafka_harness.cli."""

from kafka_harness.cli import main

raise SystemExit(main())
