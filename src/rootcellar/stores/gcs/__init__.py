"""Google Cloud Storage, by a client of our own for its JSON API over `rootcellar.stores.wire`.

Only `options` may be imported freely: the rest imports urllib3, and is therefore imported by
`rootcellar.stores.url` when such a store is opened.
"""
