"""One declaration of a contract is all that the rest of the operator goes by."""

from pathlib import Path

import pytest

from rootcellar.errors import UsageError
from rootcellar.operator.contracts import CONTRACTS, NAMES
from rootcellar.operator.process import chosen
from rootcellar.operator.settings import OperatorSettings

DOCS = Path(__file__).parents[2] / "docs"


def settings(*controllers):
    return OperatorSettings("me", "here", controllers, (), (), Path("/b"), "/b")


def test_contracts_are_served_in_their_own_order_whatever_is_asked_for_first():
    assert chosen(settings(*reversed(NAMES))) == CONTRACTS
    assert chosen(settings("backupentry")) == CONTRACTS[1:]


def test_a_name_that_no_contract_has_is_refused_with_those_that_there_are():
    with pytest.raises(UsageError, match="there is no controller 'etcd'") as refused:
        chosen(settings("backupbucket", "etcd"))
    assert refused.value.hint == f"known are {', '.join(NAMES)}"


@pytest.mark.parametrize("name", NAMES)
def test_every_contract_has_a_page_that_the_operator_s_leads_to(name):
    assert (DOCS / f"{name}.md").is_file()
    assert f"({name}.md)" in (DOCS / "operator.md").read_text()
