"""The sentence on data that no client has."""

import json

import yaml

from fedivon_app.cli.sureness import sure_of_the_unknown


def run_folder(root, name, strategy, ways):
    folder = root / name
    folder.mkdir()
    (folder / "settings.yaml").write_text(yaml.safe_dump({"strategy": strategy}))
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
