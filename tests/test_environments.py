"""The test environments have the versions of their constraint files."""

import tomllib

import pytest
from environments import PINS, ROOT, installed, normal, pinned, pins_here
from packaging.requirements import Requirement
from replica import moved

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDED = [Requirement(line) for line in PROJECT["dependencies"]]


def test_this_environment_has_the_versions_of_its_file():
    there = installed()
    assert moved({n: v for n, v in pinned(pins_here()).items() if n in there}, there) == []
    assert {normal(need.name) for need in NEEDED} <= set(pinned(pins_here()))


@pytest.mark.parametrize("name", PINS)
def test_pinned_versions_satisfy_the_requirements(name):
    pins = pinned(PINS[name])
    for need in NEEDED:
        assert need.specifier.contains(pins[normal(need.name)]), need


def test_oldest_pins_are_the_lower_bounds():
    pins = pinned(PINS["oldest"])
    for need in NEEDED:
        (bound,) = need.specifier
        assert bound.operator == ">="
        assert f"{pins[normal(need.name)]}.".startswith(f"{bound.version}."), need


def test_a_changed_version_is_reported():
    assert moved({"a": "1", "b": "1"}, {"a": "1", "b": "1", "c": "1"}) == []
    assert moved({"a": "1", "b": "1"}, {"a": "2"}) == ["a 1 -> 2", "b 1 -> gone"]
