"""The chapter on personal models."""

import pytest

from fedivon_app.core.client_scores import spread
from fedivon_app.report.pages import write_comparison, write_report
from tests.report.pages import Page, new_run, record, scored, scores

pytestmark = pytest.mark.usefixtures("quick")


def personal(level):
    """A round with the clients' scores of both models."""
    found = {}
    for whose, place, shift in (
        ("gm", "clients_before_training", 0.0),
        ("pm", "clients_after_training", level),
    ):
        by_client = [
            {"partition": p, "num_train": 10**p + 1, **scores(0.3 + p / 10 + shift)}
            for p in range(3)
        ]
        part = {
            "mean": scores(0.4 + shift, ece=0.05),
            "by_client": by_client,
            "over_clients": spread(by_client),
        }
        found[whose] = {place: part}
    return record(2, **found)


def test_personal_models_stand_beside_the_global_one_client_by_client(tmp_path, pngs):
    page = Page(
        write_report(
            new_run(tmp_path, [personal(0.2)], sets=["evaluation.personal=true"])
        ).read_text()
    )
    assert "personal" in page.ids
    assert (
        page.row("PM, after local training")[1] == "60.00"
        and page.row("GM, before local training")[1] == "40.00"
    )
    assert page.row("PM, after local training")[4] == "50.00"  # the worst of three
    for name in ("personal-by-client", "personal-by-size"):
        (path,) = tmp_path.rglob(f"{name}.png")
        assert path.stat().st_size > 5000


def test_a_comparison_of_personal_models_has_a_row_for_each_group(tmp_path):
    runs = [
        new_run(tmp_path, [personal(0.1 + k / 10)], strategy=name)
        for k, name in enumerate(("fedavg", "fedivon"))
    ]
    page = Page(write_comparison(runs, tmp_path / "both").read_text())
    assert page.row("fedavg", "PM, after local training")[2] == "50.00"
    assert page.row("fedivon", "PM, after local training")[2] == "60.00★ best"


def test_pages_without_personal_models_do_not_speak_of_them(tmp_path):
    assert "personal" not in Page(write_report(new_run(tmp_path, scored())).read_text()).ids
