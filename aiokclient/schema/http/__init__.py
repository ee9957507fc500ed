"""Requests of `SchemaRegistry`: URLs and credentials, connections, attempts, and shared results.

    `SchemaRegistry` ──▶ `Flights` ──▶ `RegistryRequests` ──▶ a pool of httpcore2 ──▶ `HttpStream`

Only the modules `requests` and `transport` import httpcore2. They are imported in a thread by the
first call.
"""
