"""The sentences on what a model can answer, and on data that no client has."""

import json

import yaml

from fedivon_app.cli.sureness import answerable, sure_of_the_unknown


def run_folder(root, name, strategy, ways, seed=0):
    folder = root / name
    folder.mkdir()
    (folder / "settings.yaml").write_text(yaml.safe_dump({"strategy": strategy, "seed": seed}))
    if ways is not None:
        (folder / "uncertainty.json").write_text(json.dumps({"ways": ways}))
    return folder


def shown(share, source="photos"):
    sure = {"from": 0.9, "in": 0.8, "out": share}
    return {"ood": {"source": source, "num_out": 346, "sure": sure}}


def test_methods_are_compared_by_their_best_way_and_over_their_seeds(tmp_path):
    folders = [
        run_folder(tmp_path, "a", "fedavg", {"mean": shown(0.25)}),
        run_folder(tmp_path, "b", "fedivon", {"mean": shown(0.5), "mc": shown(0.02)}),
        run_folder(tmp_path, "c", "fedivon", {"mean": shown(0.5), "mc": shown(0.04)}),
        run_folder(tmp_path, "d", "fedper", None),  # with no global model to ask
    ]
    said = sure_of_the_unknown(folders)
    assert said.startswith("photos: 346 examples of classes that no client has.")
    assert said.endswith(
        "90% or more is wrong to be so sure: fedavg for 25.0% and fedivon for 3.0% of them."
    )
    assert "\n" not in said


def test_nothing_is_said_where_there_is_nothing_to_compare(tmp_path):
    one = run_folder(tmp_path, "a", "fedavg", {"mean": shown(0.25)})
    other = run_folder(tmp_path, "b", "fedivon", {"mc": shown(0.02, source="mnist")})
    assert sure_of_the_unknown([one]) == ""
    assert sure_of_the_unknown([one, other]) == ""


def kept(*right):
    return {"retention": {"fractions": [0.25, 0.5, 0.75, 1.0], "entropy": list(right)}}


OF_EACH = (
    "If 95 % of the answers have to be right, and the examples that a model is least certain of "
    "are left to a person, fedivon can answer 62 % of the test data, and fedavg 25 %, a lead of "
)


def test_what_can_be_answered_is_told_of_the_best_two_and_how_sure_the_lead_is(tmp_path):
    folders = [
        run_folder(tmp_path, "a", "fedavg", {"mean": kept(1.0, 0.94, 0.9, 0.8)}),
        run_folder(tmp_path, "d", "fedper", None),  # with no global model to ask
        run_folder(
            tmp_path, "b", "fedivon", {"mean": kept(0, 0, 0, 0), "mc": kept(1, 1, 0.95, 0.9)}
        ),
        run_folder(tmp_path, "c", "fedivon", {"mc": kept(1, 0.96, 0.9, 0.9)}, seed=1),
    ]
    assert answerable(folders[:3]) == OF_EACH.replace("62", "75") + "50 points under one seed."
    assert answerable(folders) == answerable(folders[:3])  # seed 1 has no other

    more = {"mean": kept(0.96, 0.94, 0.9, 0.8)}
    folders.append(run_folder(tmp_path, "e", "fedavg", more, seed=1))
    assert answerable(folders) == (
        OF_EACH + "38 points. Judging by 2 seeds it lies between -100 and 100 points "
        "(95 % interval), so it may be chance."
    )


def test_nothing_is_said_of_one_method_or_where_all_can_be_answered(tmp_path):
    one = run_folder(tmp_path, "a", "fedavg", {"mean": kept(1, 1, 1, 0.97)})
    other = run_folder(tmp_path, "b", "fedivon", {"mc": kept(1, 1, 1, 0.99)})
    assert answerable([one]) == ""
    assert answerable([one, other]) == ""
