"""Each benchmark runs with few rounds; `make bench` measures."""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import BENCHMARKS
from benchmarks.race import Table, race, timed

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.heavy
def test_every_benchmark_runs():
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line for line in done.stdout.splitlines() if line in BENCHMARKS] == [*BENCHMARKS]


def test_contenders_take_turns_and_times_are_relative_to_the_first():
    ran, now = [], iter(range(1000))
    contenders = {name: lambda name=name: ran.append(name) for name in ("plain", "other")}
    seconds = race(contenders, rounds=2, warmups=1, clock=lambda: next(now))
    assert ran == ["other", "plain", "plain", "other", "plain", "other"]
    assert seconds == {"plain": [1, 1], "other": [1, 1]}
    table = timed("a race", {"plain": [2, 4, 2], "other": [5, 1, 6]})
    assert table.rows == [
        ["plain", "2000.00", "1", "4000.00"],
        ["other", "5000.00", "2.5", "6000.00"],
    ]


def test_a_table_is_formatted_as_markdown():
    table = Table("sizes", ["", "MB"], [["a", "10"], ["b", "7"]], "Least is best.")
    lines = ["**sizes**", "", "|  | MB |", "| --- | ---: |", "| a | 10 |", "| b | 7 |"]
    assert table.markdown().splitlines() == [*lines, "", "Least is best."]
