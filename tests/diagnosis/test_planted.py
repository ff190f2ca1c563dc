"""Faults planted in trained networks, EfficientNet-Lite0 and digit classifiers, are found."""

import pytest
from heavy import heavy_but
from zoo.faults.trained import FAULTS, NETWORKS, answers

CASES = {f"{network}: {fault}": (fault, network) for network in NETWORKS for fault in FAULTS}
QUICK = {f"digits: batchnorm: {fault}" for fault in FAULTS}

# A BatchNorm without variance changes no sum that the guard looks at.
MISSED = {"no variance"}


@pytest.mark.parametrize("name", heavy_but(QUICK, CASES))
def test_a_fault_in_a_trained_network_is_found_alone(name):
    fault, network = CASES[name]
    once, guard = answers(fault, network)
    if fault == "nothing":
        assert (once, guard) == ("no: healthy", "no: healthy")
    else:
        assert once == "yes" and (guard == "yes" or fault in MISSED)
