"""The process from which members are forked: see `nursery`."""

import socket
import sys

from .nursery import live, serve

serve(socket.socket(fileno=int(sys.argv[1])), live)
