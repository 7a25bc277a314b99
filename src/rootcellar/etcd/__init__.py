"""A live etcd: the gRPC client over our own messages, and supervision of an etcd process."""

import os

# Unless told otherwise gRPC writes handshake failures to stderr by itself, beside the message a person gets.
# It reads this when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
