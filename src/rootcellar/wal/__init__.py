"""Raft WAL and snapshot files: written for a restored member, verified for a data directory."""
