"""etcd's messages on the wire, reduced to what we use.  `testbed/protos.py` generates the modules."""
