"""Yes or no as programs in Go read it (`strconv.ParseBool`): we read their flags, variables and files."""

from __future__ import annotations


def go_boolean(value: str) -> bool:
    """Raises ValueError, with the words that finish the sentence "VALUE is ..."."""
    if value in {"1", "t", "T", "TRUE", "true", "True"}:
        return True
    if value in {"0", "f", "F", "FALSE", "false", "False"}:
        return False
    raise ValueError("neither true nor false")
