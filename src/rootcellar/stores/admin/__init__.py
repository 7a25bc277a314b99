"""Managing buckets as a whole: make or adopt, look, harden, mark as used, empty, delete.

`open_admin` is the way in; `protocol.BucketAdmin` says what every provider keeps to.
"""
