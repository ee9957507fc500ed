"""The process from which members are forked: see `nursery`."""

import socket
import sys

from .nursery import serve

serve(socket.socket(fileno=int(sys.argv[1])))
