"""Azure Blob Storage, by a client of our own over `rootcellar.stores.wire`.

Only `options` may be imported freely: the rest imports urllib3, and is therefore imported by
`rootcellar.stores.url` when such a store is opened.  Rules and names are those of the Blob service REST API,
version 2021-12-02.
"""
