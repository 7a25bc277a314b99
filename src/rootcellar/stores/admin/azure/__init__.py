"""Containers and storage accounts of Azure.

`container` speaks to the blob service, with a storage key; `account` to Azure's management, with an identity
of its own, and makes accounts, containers and keys.  Importing either imports urllib3.
"""
