"""Carrying chains from one store into another."""
