"""The configuration file: what it says, what is wrong with it, and what never shows."""

from __future__ import annotations

import json

import pytest

from rootcellar.cli import configuration
from rootcellar.cli.schema import Credentials
from rootcellar.errors import ConfigError

WHOLE = """\
stores:
- name: main
  url: s3://backups/prod/etcd-main?region=eu-west-1
  credentials: {dir: /etc/rootcellar/main}
  retention: {gfs: {hourly: 24, daily: 7, weekly: 4}, minimum: 2}
  encryption: {recipients: [age1xyz]}
  limits: {upload: 50MiB/s}
- name: second
  url: file:///srv/backups
  retention: {exponential: true}
etcd:
  endpoints: [https://10.0.0.1:2379, https://10.0.0.2:2379]
  tls: {ca: /etc/ca.pem, cert: /etc/cert.pem, key: /etc/key.pem, server-name: etcd}
  user: backup
  password: ${env:SECRET}
  quota: 8GiB
schedules:
  full: {cron: "0 */6 * * *", timezone: Europe/Berlin, jitter: 5m}
  delta: {every: 5m, bytes: 100MiB}
  verify: {cron: "0 3 * * 0", suspend: true}
policy: {backup-age: 15m, proof-age: 2d}
"""


def read(text, tmp_path):
    path = tmp_path / "rootcellar.yaml"
    path.write_text(text)
    return configuration.read(path)


def refused(text, tmp_path):
    with pytest.raises(ConfigError) as caught:
        read(text, tmp_path)
    return caught.value


def test_the_whole_schema_is_typed(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    found = read(WHOLE, tmp_path)
    assert [store.name for store in found.file.stores] == ["main", "second"]
    assert found.store("main").credentials == Credentials(dir="/etc/rootcellar/main")
    assert found.store().name == "main"
    assert found.setting("etcd.endpoints") == "https://10.0.0.1:2379,https://10.0.0.2:2379"
    assert found.setting("etcd.tls.server-name") == "etcd"
    assert found.setting("etcd.password") == "hunter2"
    assert found.setting("policy.proof-age") == "2d"


def test_nothing_written_means_defaults(tmp_path):
    assert read("", tmp_path).file == configuration.read(None).file
    assert configuration.read(None).setting("etcd.endpoints") is None


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "stores:\n- name: main\n  url: x\n  retension: {}\n",
            ":4: stores[0].retension is unknown",
            "did you mean retention?",
        ),
        (
            "etcd: {tls: {cacert: x}}\n",
            ":1: etcd.tls.cacert is unknown",
            "known here: ca, cert, key, server-name",
        ),
        ("zzz: 1\n", ":1: zzz is unknown", "known here: stores, etcd, schedules, agent, policy, operator"),
        ("etcd: {}\netcd: {}\n", ":2: etcd stands there twice", "keep one of them"),
        (
            "etcd:\n  user: a\n  endpoints: x\n",
            ":3: etcd.endpoints: expected `array`, got `str`",
            "config schema",
        ),
        ("stores:\n- name: Main\n  url: x\n", ":2: stores[0].name: ", "config schema"),
        (
            "stores:\n- name: a\n  url: x\n  credentials: {dir: x, file: y}\n",
            ":4: stores[0].credentials: needs exactly one of dir, file, env-prefix, ambient",
            "config schema",
        ),
        ("stores:\n- {name: a, url: x}\n- {name: a, url: y}\n", ": two stores are called a", "config schema"),
        ("policy: {proof-age: soon}\n", ":1: policy.proof-age: ", "config schema"),
        ("stores: [\n", ":2: is not YAML", "need quotes"),
        ("- a\n", ":1: expected `object`, got `array`", "config schema"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_a_way_out(text, message, hint, tmp_path):
    error = refused(text, tmp_path)
    assert message in error.message
    assert hint in (error.hint or "")


def test_a_file_that_is_named_must_be_there(cli, tmp_path):
    result = cli("config", "check", "--config", tmp_path / "none.yaml")
    assert result.code == ConfigError.exit_code
    assert "none.yaml cannot be read: no such file or directory" in result.err


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is no text"):
        configuration.read(path)


def test_placeholders_stand_for_files_and_variables(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("s3cret\n")
    monkeypatch.setenv("USER_NAME", "backup")
    path = f"${{file:{tmp_path / 'secret'}}}"
    assert configuration.reveal(path) == "s3cret"
    assert configuration.reveal("x-${env:USER_NAME}-y") == "x-backup-y"
    assert configuration.reveal("$${env:USER_NAME}") == "${env:USER_NAME}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${file:/nowhere/at/all}", "cannot be read: no such file or directory"),
        ("${env:NOT_SET_AT_ALL}", "is not set"),
        ("${vault:x}", "means nothing"),
        ("${env:}", "means nothing"),
    ],
)
def test_a_placeholder_that_stands_for_nothing_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        configuration.reveal(text)


def test_a_secret_that_nobody_needs_stops_nobody(ok, config, ebr):
    config(
        "etcd: {password: '${env:NOT_SET_AT_ALL}'}\nstores:\n- {name: main, url: 'file://"
        + str(ebr())
        + "'}\n"
    )
    assert "127 to 294" in ok("ls", "@main").out


def test_the_first_store_is_meant_where_none_is_named(ok, config, ebr):
    config(f"stores:\n- {{name: main, url: 'file://{ebr()}'}}\n- {{name: other, url: 'file:///nowhere'}}\n")
    assert ok("ls", "--output", "json").json["store"].endswith("ebr-gzip-3.5")


def test_a_variable_names_the_store_above_the_configuration(ok, config, ebr, monkeypatch):
    config("stores:\n- {name: main, url: 'file:///nowhere'}\n")
    monkeypatch.setenv("ROOTCELLAR_STORE", str(ebr()))
    assert ok("ls", "--output", "json").json["store"].endswith("ebr-gzip-3.5")


def test_a_store_that_is_not_configured_is_told_with_the_nearest(cli, config):
    config("stores:\n- {name: main, url: 'file:///nowhere'}\n")
    result = cli("ls", "@mian")
    assert result.code == ConfigError.exit_code
    assert "has no store @mian" in result.err
    assert "did you mean @main?" in result.err


def test_without_any_store_the_three_ways_to_name_one_are_told(cli):
    result = cli("ls")
    assert result.code == ConfigError.exit_code
    assert "no store is named" in result.err
    assert "@NAME" in result.err


def test_the_file_is_looked_for_where_a_variable_says(ok, tmp_path, monkeypatch):
    path = tmp_path / "other.yaml"
    path.write_text("policy: {proof-age: 3d}\n")
    monkeypatch.setenv("ROOTCELLAR_CONFIG", str(path))
    assert ok("config", "show", "--output", "json").json["path"] == str(path)


def test_check_finds_every_mistake_at_once(cli, config):
    config(
        "stores:\n- {name: a, url: 'ftp://x'}\n- {name: b, url: 'file:///x', credentials: {file: /nowhere}}\n"
        "etcd: {password: '${env:NOT_SET_AT_ALL}', tls: {cert: /nowhere/cert}}\n"
    )
    result = cli("config", "check")
    assert result.code == ConfigError.exit_code
    for told in (
        "${env:NOT_SET_AT_ALL} is not set",
        "store @a: there is no store of kind ftp",
        "store @b: cannot read /nowhere",
        "etcd.tls: a client certificate needs its key",
        "etcd.tls: there is no file /nowhere/cert",
    ):
        assert told in result.out
    assert "has 5 mistakes" in result.err


def test_check_says_that_all_is_fine(ok, config):
    config("stores:\n- {name: main, url: 'file:///x'}\n")
    assert "rootcellar.yaml is fine; stores: @main" in ok("config", "check").out
    assert ok("config", "check", "--output", "json").json["problems"] == []


def test_show_blots_out_secrets_and_leaves_placeholders(ok, config, monkeypatch):
    config("etcd: {user: backup, password: hunter2}\n")
    monkeypatch.setenv("ROOTCELLAR_PASSWORD", "hunter3")
    monkeypatch.setenv("ROOTCELLAR_PASWORD", "hunter4")
    monkeypatch.setenv("ROOTCELLAR_TIMEOUT", "20s")
    for output in ("text", "json", "yaml"):
        shown = ok("config", "show", "--output", output).out
        assert "hunter" not in shown
        assert "ROOTCELLAR_TIMEOUT" in shown
        assert "(means nothing)" in shown
    config("etcd: {user: backup, password: '${env:SECRET}'}\n")
    assert "${env:SECRET}" in ok("config", "show").out


def test_a_store_that_wants_encryption_gets_nothing_in_the_clear(cli, ok, config, ebr, tmp_path):
    root, source = ebr(), tmp_path / "db"
    source.write_bytes(bytes(512))
    config(f"stores:\n- {{name: main, url: 'file://{root}', encryption: {{recipients: [age1x]}}}}\n")
    ok("ls", "@main")
    before = sorted(path for path in root.rglob("*") if path.is_file())
    for store in ("@main", f"file://{root}"):
        result = cli("import", source, store)
        assert result.code == ConfigError.exit_code
        assert "recipient 'age1x' is not the text of a key" in result.err
    assert sorted(path for path in root.rglob("*") if path.is_file()) == before


def test_credentials_come_in_four_forms(cli, tmp_path):
    for form, message in (
        (f"dir:{tmp_path}", "no credentials in"),
        ("file:/nowhere", "cannot read /nowhere"),
        ("env:NOWHERE_", "no environment variable begins with NOWHERE_"),
        ("nonsense", "--credentials is 'nonsense'"),
    ):
        result = cli("ls", "s3://bucket/prefix?endpoint=http://127.0.0.1:1", "--credentials", form)
        assert message in result.err


def test_a_password_never_stands_on_the_command_line(cli, ebr):
    result = cli("status", ebr(), "--endpoints", "http://127.0.0.1:1", "--user", "root:secret")
    assert result.code == 11
    assert "--user holds a password" in result.err
    assert "secret" not in result.err


def test_the_schema_is_printed(ok):
    assert json.loads(ok("config", "schema").out)["$defs"]["Store"]["required"] == ["name", "url"]
