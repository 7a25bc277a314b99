"""Backup, proof and restore for etcd."""

__version__ = "0.1.0"
