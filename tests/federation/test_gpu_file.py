"""The file that gives a site's container a GPU."""

from pathlib import Path

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_it_adds_a_gpu_to_services_that_a_site_has():
    site = yaml.safe_load((DEPLOY / "site.yml").read_text())["services"]
    added = yaml.safe_load((DEPLOY / "gpu.yml").read_text())["services"]
    assert set(added) == {"supernode", "doctor"} <= set(site)
    for service in added.values():
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device["capabilities"] == ["gpu"]
