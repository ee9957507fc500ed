"""The process from which members are forked: see `churn.nursery`."""

import socket
import sys

from churn.nursery import serve

from .processes import live

serve(socket.socket(fileno=int(sys.argv[1])), live)
