"""What a site allows, as `fedivon doctor` shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedivon_app.core.errors import RunError, SettingsError
from fedivon_app.federation.findings import Finding, failure, ok, warning
from fedivon_app.plurals import counted


def policy_findings(node: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the site's limits and trust, and what has been spent of its data's privacy."""
    from fedivon_app.core.site_policy import SitePolicy, site_ledger
    from fedivon_app.node import seclusion
    from fedivon_app.node.site_guard import audit_path
    from fedivon_app.node.trust import trust_of

    try:
        trust = trust_of(node)
        policy = SitePolicy.of(node)
        spent = [account.spent() for account in site_ledger(node).accounts().values()]
    except (SettingsError, RunError) as error:
        yield failure("policy", str(error), "set it right: until then the site runs nothing")
        return
    for line in policy.lines():
        yield ok("policy", line)
    if not policy.network and (why := seclusion.obstacle()):
        yield failure(
            "policy",
            f"this machine cannot keep code from the network: {why}",
            "take network=false out of the node config, and let the node's container keep it: see "
            "docs/privacy.md",
        )
    yield from _of_sums(node)
    if trust is None:
        yield warning(
            "policy",
            "the site runs whatever code the server sends",
            "list the bundles and signers that it trusts in a file, and name that as trust-path "
            "in the node config: see docs/privacy.md",
        )
    else:
        bundles = counted(len(trust.bundles), "bundle")
        signers = counted(len(trust.signers), "signer")
        yield ok("policy", f"the site runs what it lists, {bundles}, or what is signed, {signers}")
    if spent:
        data = counted(len(spent), "data set")
        yield ok("ledger", f"{data}; of the most used one, epsilon {max(spent):.3g} is spent")
    yield ok("audit log", str(audit_path(node)))


def _of_sums(node: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield on which conditions the site takes part in secure sums, if it names any."""
    from fedivon_app.secure_client import conditions_of

    if not {"smallest-cohort", "signing-key", "site-keys"} & set(node):
        return
    try:
        conditions = conditions_of(node)
    except SettingsError as error:
        remedy = "set it right: until then the site takes part in none"
        yield failure("secure sums", str(error), remedy)
        return
    said = f"over at least {conditions.smallest_cohort} sites"
    if conditions.verifiers is not None:
        said += f", all of them with one of {counted(len(conditions.verifiers), 'known key')}"
    if conditions.signer is not None:
        said += "; its keys of each round are signed"
    if "smallest-cohort" in node:
        said += "; nothing is sent in the open"
    yield ok("secure sums", said)
