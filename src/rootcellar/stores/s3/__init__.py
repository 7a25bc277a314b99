"""S3 and what speaks like it.

Only `options` may be imported freely: everything else here imports botocore, which takes a third of a second,
and is therefore imported by `rootcellar.stores.url` when an S3 store is opened.
"""
