"""bbolt files: pages, read-only walk, check, append-and-commit.  Knows no etcd."""
