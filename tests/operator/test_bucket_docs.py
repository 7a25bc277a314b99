"""The page about BackupBuckets says what there is."""

import re
from pathlib import Path

from rootcellar.operator.backupbucket import findings, run
from rootcellar.operator.shared.place import TYPES
from rootcellar.stores.admin import codes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "backupbucket.md").read_text()


def test_every_test_that_the_page_names_exists():
    sources = {path.name: path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    named = set(re.findall(r"`(test_\w+(?:\.py)?)`", PAGE))
    assert len(named) > 20
    for name in named:
        if name.endswith(".py"):
            assert name in sources
        else:
            assert any(f"def {name}(" in source for source in sources.values()), name


def test_every_type_annotation_and_condition_is_on_the_page():
    annotations = (run.COLLECT, run.DRY_RUN, run.EMPTY, run.KEEP, run.ROTATE)
    conditions = (
        findings.REACHABLE,
        findings.SETTINGS,
        findings.RETENTION,
        findings.CREDENTIALS,
        findings.PLANNED,
        findings.LEFT,
        findings.UNNAMED,
        findings.DECIDED,
    )
    for each in (*TYPES, *annotations, *conditions):
        assert f"`{each}" in PAGE, each


def test_every_error_code_has_its_section():
    page = (ROOT / "docs" / "error-codes.md").read_text()
    known = {value for value in vars(codes).values() if isinstance(value, str) and value.startswith("ERR_")}
    assert set(re.findall(r"^## (ERR_\w+)$", page, re.MULTILINE)) == known
