"""Buckets of S3 and what speaks like it.

Importing `admin` imports botocore, which takes a third of a second; `rootcellar.stores.admin.opening` does so
when such a bucket is opened.
"""
