import gzip
import io
import lzma
import random
import struct
import tarfile
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.imports import unwrapped as module
from rootcellar.backup.imports.unwrapped import unwrapped
from rootcellar.backup.imports.wrappings import Form
from rootcellar.errors import DamagedObjectError, FormatError, TargetError, UsageError
from rootcellar.mvcc import record
from rootcellar.mvcc.record import KeyValue
from rootcellar.mvcc.revision import encode_row_key
from tests.backup.ebr_data import EBR, EBR_NAMES, EBR_PREFIX
from tests.backup.wrapped import OPENSHIFT_DATE, k3s_zip, kops_dir, openshift_dir
from tests.mvcc.databases import write_database


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """A small database with a few keys, and its hash as `etcdctl snapshot save` appends it."""
    rows = {
        encode_row_key(at): record.encode(KeyValue(b"k%d" % at, at, at, 1, b"v" * 40)) for at in range(2, 60)
    }
    path = write_database(tmp_path_factory.mktemp("raw") / "db", {b"key": rows})
    database = path.read_bytes()
    return database + module.hashlib.sha256(database).digest()


def refusal(path, error=FormatError):
    with pytest.raises(error) as caught, unwrapped(path):
        pass
    assert caught.value.hint
    return caught.value.message


def contents(path, **options):
    with unwrapped(path, **options) as found:
        return b"".join(found.chunks())


@pytest.mark.parametrize("name", EBR_NAMES)
def test_a_full_of_ebr_is_read_by_itself_whatever_its_compression(name):
    (path,) = (EBR / name / "store" / EBR_PREFIX / "v2").glob("Full-*")
    with unwrapped(path) as found:
        assert (found.wrapping.form, found.is_hashed) == (Form.FULL, True)
        assert found.wrapping.taken_at.timestamp() == int(path.name.split("-")[3].split(".")[0])
        assert sum(map(len, found.chunks())) == found.size


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (b"age-encryption.org/v1\n-> X25519 x", "is encrypted with age"),
        (b"-----BEGIN AGE ENCRYPTED FILE-----\n", "is encrypted with age"),
        (b"-----BEGIN PGP MESSAGE-----\n", "is encrypted with PGP"),
        (b"Salted__12345678", "is encrypted with openssl"),
        (b"\x28\xb5\x2f\xfd\x24", "is compressed with zstd"),
        (lzma.compress(b"x"), "is compressed with xz"),
        (b"BZh91AY", "is compressed with bzip2"),
        (b"\x04\x22\x4d\x18", "is compressed with lz4"),
        (b"SQLite format 3\0", "is a SQLite database"),
        (b"", "is not an etcd database"),
        (b"hello", "is not an etcd database"),
        (bytes(8192), "is not an etcd database"),
    ],
)
def test_what_is_not_read_is_recognised_and_told_what_to_do(tmp_path, head, told):
    path = tmp_path / "backup.bin"
    path.write_bytes(head)
    assert told in refusal(path)
    packed = tmp_path / "backup.gz"
    packed.write_bytes(gzip.compress(head))
    assert told in refusal(packed)


def test_a_tar_and_what_is_packed_twice_are_refused(tmp_path, raw):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        entry = tarfile.TarInfo("snapshot.db")
        entry.size = len(raw)
        archive.addfile(entry, io.BytesIO(raw))
    assert "is a tar archive" in refusal(tmp_path / "a.tar")
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress((tmp_path / "a.tar").read_bytes()))
    assert "is a tar archive" in refusal(tmp_path / "a.tar.gz")
    (tmp_path / "a.db.gz").write_bytes(gzip.compress(gzip.compress(raw)))
    assert "packed more than once" in refusal(tmp_path / "a.db.gz")


def test_a_hash_that_is_wrong_is_damage(tmp_path, raw):
    path = tmp_path / "snapshot.db"
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert "the sha256 at its end is not that of" in refusal(path, DamagedObjectError)


def test_a_file_cut_short_is_damage(tmp_path, raw):
    path = tmp_path / "snapshot.db"
    path.write_bytes(raw[: len(raw) // 2])
    assert "is cut short" in refusal(path, DamagedObjectError)


def test_unused_pages_behind_a_copied_database_are_left_out(tmp_path, raw):
    path = tmp_path / "db"
    path.write_bytes(raw[:-32] + bytes(1 << 20))
    with unwrapped(path) as found:
        assert (found.size, found.is_hashed) == (len(raw) - 32, False)
        assert [notice.code for notice in found.notices] == ["no-hash"]
        assert sum(map(len, found.chunks())) == found.size


def test_a_gzip_cut_short_or_flipped_is_damage(tmp_path, raw):
    packed = bytearray(gzip.compress(raw))
    (tmp_path / "short.gz").write_bytes(packed[:-9])
    assert "is cut short" in refusal(tmp_path / "short.gz", DamagedObjectError)
    packed[-5] ^= 1
    (tmp_path / "flipped.gz").write_bytes(packed)
    assert "is damaged" in refusal(tmp_path / "flipped.gz", DamagedObjectError)


def zipped(path, *names, data=b"", method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name in names:
            archive.writestr(name, data)
    return path


def test_a_zip_of_none_or_several_files_is_refused(tmp_path, raw):
    assert "holds no files" in refusal(zipped(tmp_path / "none.zip"))
    assert "holds 2 files" in refusal(zipped(tmp_path / "two.zip", "a", "b", data=raw))
    zipped(tmp_path / "directory.zip", "etcd/", "etcd/snapshot", data=b"")
    with zipfile.ZipFile(tmp_path / "directory.zip", "w") as archive:
        archive.mkdir("etcd")
        archive.writestr("etcd/snapshot", raw)
    assert contents(tmp_path / "directory.zip") == raw[:-32]


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "..\\x", "C:\\x", "~/x", "\\\\host\\x"])
def test_a_zip_entry_whose_name_leads_elsewhere_is_refused(tmp_path, raw, name):
    path = zipped(tmp_path / "evil.zip", name, data=raw)
    assert "leads elsewhere" in refusal(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_compressed_as_k3s_never_does_is_refused(tmp_path, raw, method):
    assert "a way k3s never does" in refusal(zipped(tmp_path / "a.zip", "a", data=raw, method=method))


def test_a_zip_with_a_password_is_refused(tmp_path, raw):
    path = k3s_zip(raw, tmp_path / "a.zip")
    data = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.rindex(signature) + flags] |= 1
    path.write_bytes(data)
    assert "is encrypted" in refusal(path)


def test_a_zip_that_a_full_disk_cut_short_is_damage(tmp_path, raw):
    path = k3s_zip(raw, tmp_path / "a.zip")
    path.write_bytes(path.read_bytes()[:-40])
    assert "the zip archive cannot be read" in refusal(path, DamagedObjectError)


def test_a_zip_that_states_a_huge_directory_is_refused_unread(tmp_path, raw):
    path = k3s_zip(raw, tmp_path / "a.zip")
    data = bytearray(path.read_bytes() + bytes(4 << 20))
    end = bytearray(data[data.rindex(b"PK\x05\x06") :][:22])
    end[12:20] = struct.pack("<II", 3 << 20, len(data) - (3 << 20))
    path.write_bytes(bytes(data) + bytes(end))
    assert "its directory is too large" in refusal(path, DamagedObjectError)


class Zeros:
    """Database bytes, then zeros for ever, as gzip would deliver them."""

    def __init__(self, head, size):
        packer = zlib.compressobj(9, wbits=31)
        self.packed = packer.compress(head)
        block = bytes(1 << 20)
        self.packed += b"".join(packer.compress(block) for _ in range(size >> 20)) + packer.flush()


def test_a_bomb_is_unpacked_no_further_than_its_database_can_reach(tmp_path, raw):
    path = tmp_path / "bomb.gz"
    path.write_bytes(Zeros(raw, 256 << 20).packed)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(FormatError, match="unpacks to more than"), unwrapped(path, scratch=scratch):
        pass
    assert list(scratch.iterdir()) == []


def test_a_bomb_whose_database_claims_to_be_huge_stops_at_the_limit(tmp_path, raw):
    meta = module.find_meta(raw)
    huge = module.replace(meta, high_water=1 << 40)
    head = huge.page(0) + module.replace(huge, txid=huge.txid - 1).page(1) + raw[8192:]
    path = tmp_path / "bomb.gz"
    path.write_bytes(Zeros(head, 32 << 20).packed)
    with pytest.raises(FormatError, match="unpacks to more than the 8388608"), unwrapped(path, limit=8 << 20):
        pass
    assert "is cut short" in refusal(path, DamagedObjectError)


def test_kops_notes_tell_version_and_time_and_their_lack_is_told(tmp_path, raw):
    path = kops_dir(raw, tmp_path / "kops")
    with unwrapped(path) as found:
        assert (found.wrapping.form, found.wrapping.etcd_version) == (Form.KOPS, "3.5.9")
        assert found.notices == ()
    (path / "_etcd_backup.meta").write_text("{")
    with unwrapped(path) as found:
        assert found.wrapping.etcd_version == ""
        assert [notice.code for notice in found.notices] == ["no-meta"]
    (path / "_etcd_backup.meta").write_text('{"etcdVersion": "2.2.1"}')
    assert "backup of etcd 2.2.1" in refusal(path)


def test_openshifts_other_half_is_told_of_and_a_dirty_backup_too(tmp_path, raw):
    path = openshift_dir(raw, tmp_path / "clean")
    with unwrapped(path) as found:
        assert found.wrapping.form is Form.OPENSHIFT
        assert [notice.code for notice in found.notices] == ["static-resources"]
        assert "keep it" in found.notices[0].message
    next(path.glob("static_*")).unlink()
    with unwrapped(path) as found:
        assert "is missing" in found.notices[0].message
    dirty = openshift_dir(raw, tmp_path / "dirty", "__POSSIBLY_DIRTY__")
    with unwrapped(dirty / f"snapshot_{OPENSHIFT_DATE}__POSSIBLY_DIRTY__.db") as found:
        assert [notice.code for notice in found.notices] == ["static-resources", "possibly-dirty"]


def test_a_directory_of_one_file_is_that_file_and_of_several_none(tmp_path, raw):
    assert "holds no file" in refusal(tmp_path, UsageError)
    (tmp_path / "snapshot.db").write_bytes(raw)
    (tmp_path / ".DS_Store").touch()
    assert contents(tmp_path) == raw[:-32]
    (tmp_path / "other.db").write_bytes(raw)
    assert "holds several files" in refusal(tmp_path, UsageError)
    assert "does not exist" in refusal(tmp_path / "none", UsageError)


def test_a_scratch_directory_without_room_is_told(tmp_path, raw):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(raw))
    with (
        pytest.raises(TargetError, match="No such file") as caught,
        unwrapped(path, scratch=tmp_path / "none"),
    ):
        pass
    assert "permitted" in caught.value.hint


def mutated(data, packed):
    """One of: bytes flipped, a piece cut out or doubled, the end cut off."""
    at = data.draw(st.integers(0, len(packed) - 1))
    size = data.draw(st.integers(1, 40))
    kind = data.draw(st.sampled_from(["flip", "cut", "double", "end"]))
    if kind == "flip":
        return packed[:at] + bytes([packed[at] ^ data.draw(st.integers(1, 255))]) + packed[at + 1 :]
    if kind == "cut":
        return packed[:at] + packed[at + size :]
    if kind == "double":
        return packed[: at + size] + packed[at:]
    return packed[:at]


@pytest.fixture(scope="module")
def small_zip(raw, tmp_path_factory):
    return k3s_zip(raw, tmp_path_factory.mktemp("zip") / "a.zip").read_bytes()


@given(st.data())
def test_a_mutated_zip_is_refused_or_gives_the_very_same_database(raw, small_zip, tmp_path_factory, data):
    packed = mutated(data, small_zip)
    path = tmp_path_factory.mktemp("mutated") / "a.zip"
    path.write_bytes(packed)
    try:
        found = contents(path)
    except FormatError:
        return
    assert found == raw[:-32]


def test_every_byte_of_a_zips_frame_flipped_is_refused_or_harmless(raw, small_zip, tmp_path):
    frame = [*range(80), *range(len(small_zip) - 160, len(small_zip))]
    path = tmp_path / "a.zip"
    rng = random.Random(3)
    for at in frame:
        path.write_bytes(
            small_zip[:at] + bytes([small_zip[at] ^ rng.randrange(1, 256)]) + small_zip[at + 1 :]
        )
        try:
            found = contents(path)
        except FormatError:
            continue
        assert found == raw[:-32], at
