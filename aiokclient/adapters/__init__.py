"""Other clients' interfaces on top of aiokclient, so that a program moves on call by call.

An adapter uses only the public API of the library.
"""
