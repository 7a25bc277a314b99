"""A lost block in the middle of a log is not a torn tail, though every rule of etcd calls it one."""

import pytest

from rootcellar.errors import WalError
from rootcellar.wal.verify import verify_wal


@pytest.fixture
def long_log(log):
    """Forty writes, each synced before the next."""
    for index in range(1, 41):
        log.entry(index, data=bytes([index]) * 700)
        log.state(commit=index)
    return log


def overwrite(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("spare", [0, 64_000])
@pytest.mark.parametrize("block", [bytes(4096), b"\xee" * 4096], ids=["zeros", "garbage"])
@pytest.mark.parametrize("at", [4096, 8192, 16_384])
def test_a_lost_block_with_synced_writes_behind_it_is_damage(long_log, at, block, spare):
    with long_log.path.open("ab") as file:
        file.write(bytes(spare))
    overwrite(long_log.path, at, block)
    place = max(end for end in long_log.boundaries if end <= at)

    with pytest.raises(WalError, match=f"damaged at byte {place}: ") as caught:
        verify_wal(long_log.directory)

    assert caught.value.code == "wal"
    assert "restore the member" in caught.value.hint


def test_a_lost_block_right_before_the_last_write_may_be_that_write(long_log):
    overwrite(long_log.path, long_log.boundaries[-5], bytes(512))

    torn = verify_wal(long_log.directory).torn

    assert torn.valid_length <= long_log.boundaries[-5]
    assert torn.dropped > 0


def test_one_large_write_of_which_only_the_middle_never_arrived_is_torn(log):
    log.entry(1)
    log.state(commit=1)
    whole = log.boundaries[-1]
    for index in range(2, 60):
        log.entry(index, data=b"of one batch" * 40)
    log.state(commit=1)
    overwrite(log.path, 4096, bytes(8192))

    report = verify_wal(log.directory)

    assert whole < report.torn.valid_length <= 4096
    assert report.torn.dropped > 10_000


def test_values_that_look_like_records_prove_nothing(log):
    log.entry(1)
    log.state(commit=1)
    whole = log.boundaries[-1]
    log.entry(2, data=b"\0\0\0\0\0\0\0\0\x08\x02\x10\x05" * 100_000)
    with log.path.open("r+b") as file:
        file.truncate(log.boundaries[-1] - 1000)

    assert verify_wal(log.directory).torn.valid_length == whole
