"""The page about BackupEntries names tests: each of them exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "backupentry.md").read_text()))
    texts = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    there = {name for text in texts for name in re.findall(r"^ *def (test_\w+)", text, re.MULTILINE)}
    assert len(named) > 30
    assert sorted(named - there) == []


def test_no_row_of_its_tables_is_without_a_test_or_a_reason():
    page = (ROOT / "docs" / "backupentry.md").read_text()
    tables = page.split("## What was weak elsewhere")[1].split("## What was not run")[0]
    rows = [line for line in tables.splitlines() if line.startswith("| ")]
    plain = [row for row in rows if "`test_" not in row and "not here: " not in row]
    assert [row.split("|")[1].strip() for row in plain] == ["weakness", "---", "line", "---"]
