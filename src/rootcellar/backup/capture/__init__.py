"""From a live etcd into the store."""
