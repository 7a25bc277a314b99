"""etcd's records in bolt files: revisions, KeyValue, HashKV, leases, membership.  Knows no network."""
