"""Lines of etcd for slow tests: the oldest and the newest always, those between as long tests."""

import pytest

from testbed.binaries import LINES

OLDEST, *BETWEEN, NEWEST = LINES
OLDEST_AND_NEWEST = (OLDEST, *(pytest.param(line, marks=pytest.mark.long) for line in BETWEEN), NEWEST)

on_oldest_and_newest = pytest.mark.parametrize("etcd_line", OLDEST_AND_NEWEST)
on_oldest_and_newest_binary = pytest.mark.parametrize("binary", OLDEST_AND_NEWEST, indirect=True)
