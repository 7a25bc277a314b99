"""Snapshots that other tools took."""
