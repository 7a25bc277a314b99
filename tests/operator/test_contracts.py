"""One declaration of a contract is all that the rest of the operator goes by."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from rootcellar.errors import UsageError
from rootcellar.kube.access import Access
from rootcellar.kube.manager import Manager
from rootcellar.logs import make_log
from rootcellar.operator.contracts import CONTRACTS, NAMES
from rootcellar.operator.process import chosen
from rootcellar.operator.settings import OperatorSettings
from rootcellar.operator.shared.contract import Means

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


def test_who_sees_for_himself_follows_secrets_once_for_all_contracts_and_not_what_is_in_them(tmp_path):
    log = make_log("json", io.StringIO())
    manager = Manager(Access("https://127.0.0.1:1"), identity="me", log=log)
    told = replace(settings(*NAMES), ignore_annotation=True)
    for contract in CONTRACTS:
        contract.serve(manager, Means(told, "owner", tmp_path, log))
    followed = {name: reflector.kind.is_bare for name, reflector in manager.reflectors.items()}
    assert followed == {"backupbuckets": False, "backupentries": False, "secrets": True, "namespaces": True}


@pytest.mark.parametrize("name", NAMES)
def test_every_contract_has_a_page_that_the_operator_s_leads_to(name):
    assert (DOCS / f"{name}.md").is_file()
    assert f"({name}.md)" in (DOCS / "operator.md").read_text()
