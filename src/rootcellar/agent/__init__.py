"""The process beside etcd: what it does before etcd starts, while it runs, and at its end."""
