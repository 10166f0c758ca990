"""The site's own word: what is let in, what is refused by name, and what the audit log has."""

import json
from hashlib import sha256

import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from fedivon_app.core.errors import SettingsError
from fedivon_app.federation.signatures import make_key, sign
from fedivon_app.node.site_guard import Asked, SiteGuard
from fedivon_app.node.supernode import become_stock
from fedivon_app.node.trust import Trust
from tests.node.test_tasks import RUN, Node, Warm, insert

CODE = b"the bundle"
HASH = sha256(CODE).hexdigest()


class Site:
    """A site with a file of what it trusts, and an operator who signs."""

    def __init__(self, folder):
        self.folder = folder
        self.key = folder / "operator.key"
        self.public = make_key(self.key, "operator").read_text().strip()
        self.trusts(signers=[self.public])

    def trusts(self, bundles=(), signers=()):
        text = f"bundles = {json.dumps(list(bundles))}\nsigners = {json.dumps(list(signers))}\n"
        (self.folder / "trust.toml").write_text(text)

    def refusal(self, code=CODE, signature="", run=1, settings=None, kind="train", **node):
        node = {
            "state-path": str(self.folder),
            "trust-path": str(self.folder / "trust.toml"),
        } | node
        asked = Asked(run=run, bundle="abc", kind=kind, settings=settings)
        return SiteGuard(node).refusal(asked, code, {"signature": signature})

    def signature(self, code=CODE, days=7.0):
        return sign(sha256(code).hexdigest(), self.key, days)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_a_listed_bundle_runs_and_another_does_not(site):
    site.trusts(bundles=[HASH])
    assert site.refusal() == ""
    why = site.refusal(code=CODE + b" altered")
    assert "does not run the bundle" in why and "not on the site's list" in why


def test_a_signed_bundle_runs_in_one_run(site):
    signature = site.signature()
    assert site.refusal(signature=signature, run=5) == ""
    assert site.refusal(signature=signature, run=5) == ""  # the next message of the same run
    assert "used before, by run 5" in site.refusal(signature=signature, run=6)  # a replay
    assert site.refusal(signature=site.signature(), run=6) == ""


@pytest.mark.parametrize(
    ("code", "words", "why"),
    [
        (CODE, {"signature": ""}, "it is not signed"),
        (CODE, {"signature": "nonsense"}, "is none"),
        (CODE + b" altered", {}, "it was altered, for its signature is of"),
        (CODE, {"days": -1.0}, "was good until"),
    ],
)
def test_what_is_not_signed_well_is_refused_by_name(site, code, words, why):
    signature = words.get("signature", site.signature(days=words.get("days", 7.0)))
    assert why in site.refusal(code=code, signature=signature)


def test_who_is_no_longer_trusted_signs_nothing(site):
    site.trusts(signers=[])
    assert "nobody whom this site trusts" in site.refusal(signature=site.signature())


@pytest.mark.parametrize(
    "text", ["bundles = 3", 'bundles = ["abc"]', 'other = "x"', "not toml", 'signers = ["x"]']
)
def test_a_file_that_cannot_be_read_lets_nothing_in(site, text):
    (site.folder / "trust.toml").write_text(text)
    assert "policy cannot be read, and so it runs nothing" in site.refusal()
    with pytest.raises(SettingsError):
        Trust.read(site.folder / "trust.toml")


def test_a_missing_file_or_a_bad_limit_lets_nothing_in(site):
    assert "runs nothing" in site.refusal(**{"trust-path": str(site.folder / "none.toml")})
    assert "runs nothing" in site.refusal(**{"largest-epsilon": "much"})


def test_limits_are_for_settings_that_came(site):
    site.trusts(bundles=[HASH])
    limit = {"largest-epsilon": 2.0}
    assert "no settings" in site.refusal(**limit)
    assert site.refusal(kind="query", **limit) == ""  # as of keys and shares for a secure sum
    assert "is not private" in site.refusal(kind="query", settings={"privacy": {}}, **limit)
    assert "is not private" in site.refusal(settings={"strategy": "fedavg"}, **limit)
    assert site.refusal(settings={"privacy": {"epsilon": 1.0, "delta": 1e-6}}, **limit) == ""


def test_flowers_own_node_does_not_start_where_bundles_are_to_be_checked():
    with pytest.raises(SettingsError, match="trust-path.*does not start"):
        become_stock(["--node-config", 'trust-path="x"'])


# In the node's own loop.


@pytest.fixture
def node(monkeypatch, tmp_path):
    return Node(monkeypatch, tmp_path)


def audit(node):
    return [json.loads(line) for line in (node.place / "audit.jsonl").read_text().splitlines()]


def test_nothing_of_a_refused_bundle_is_unpacked_or_run(node, monkeypatch):
    (node.place / "trust.toml").write_text("bundles = []\n")
    node.config = {"trust-path": str(node.place / "trust.toml")}

    def never(*words, **options):
        raise AssertionError("the bundle was unpacked")

    monkeypatch.setattr("fedivon_app.node.tasks.install_from_fab", never)
    warm = Warm(never)
    node.tasks(warm).see_through(node.message)
    assert "this site does not run the bundle" in node.error()
    assert not warm.orders
    (line,) = audit(node)
    assert (line["event"], line["run"], line["bundle"]) == ("refused", RUN, "abc")
    assert "not on the site's list" in line["why"]


def test_what_leaves_is_in_the_audit_log(node):
    settings = json.dumps({"strategy": "fedivon"})
    asked = RecordDict({"config": ConfigRecord({"round": 3, "settings": settings})})
    node.state.delete_messages()
    node.message = Message(asked, 5, "train")
    insert(node.message, node.state, node.store)

    def app(order):
        told = MetricRecord({"num-examples": 7, "epsilon": 1.25})
        insert(
            Message(RecordDict({"metrics": told}), reply_to=node.message), node.state, node.store
        )
        node.finish()

    node.tasks(Warm(app)).see_through(node.message)
    (reply,) = node.replies()
    assert not reply.has_error()
    (line,) = audit(node)
    assert (line["event"], line["method"], line["round"]) == ("sent", "fedivon", 3)
    assert line["values"] == ["epsilon", "num-examples"] and line["epsilon"] == 1.25
    assert line["bytes"] > 20


def test_what_failed_is_in_the_audit_log(node):
    node.tasks(Warm(lambda order: -9)).see_through(node.message)
    (line,) = audit(node)
    assert (line["event"], line["why"]) == ("failed", "its process was ended by SIGKILL")
