"""A Kubernetes API server, as a client sees it, and what runs controllers on it.  Knows no contract.

`access` finds out where it is and as whom we speak; `client` reads and writes objects, typed by the `Kind`s
of `kinds`.  A `reflector` keeps a `cache` of one kind as it is there.  A `controller` makes keys of changes
(`filters`), has them wait in a `queue`, and has each reconciled, in `steps`.  An `election` says who may
write, `writes` are only of what changes, and a `manager` runs it all.
"""
