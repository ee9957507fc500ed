"""Run the command line: `python -m aiokclient --help`."""

import sys

from aiokclient.cli import main

if __name__ == "__main__":
    sys.exit(main())
