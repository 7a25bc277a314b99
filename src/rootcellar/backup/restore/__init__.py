"""From the store into a data directory, without running etcd."""
