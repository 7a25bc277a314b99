"""A Kubernetes API server, as a client sees it.  Knows no contract.

`access` finds out where it is and as whom we speak; `client` reads and writes objects, typed by the `Kind`s
of `kinds`.
"""
