"""Running statistics do not depend on how the values are split into parts."""

import math
from functools import reduce
from itertools import pairwise
from operator import add

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hookviz.hooking.tensors import as_real, count_nonzero
from hookviz.run.statistics import NONE, LogBins, Moments, TopK, extremes_of

SPECIAL = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-30, 3e38, 2.0**-60, 1.0]
NUMBERS = st.one_of(
    st.sampled_from(SPECIAL),
    st.floats(-1e6, 1e6, width=32),
    st.floats(999.0, 1001.0, width=32),  # a mean that is large compared with the deviation
)
BINS = LogBins(-24, 24, 4)


@st.composite
def split_values(draw):
    """Draw values, and the indices at which they are split into parts."""
    values = draw(st.lists(NUMBERS, min_size=1, max_size=40))
    cuts = draw(st.lists(st.integers(0, len(values)), max_size=4))
    return torch.tensor(values), [0, *sorted(cuts), len(values)]


def parts_of(values, cuts):
    return [values[start:stop] for start, stop in pairwise(cuts) if stop > start]


@settings(deadline=None)
@given(split_values(), st.randoms())
def test_merged_moments_equal_those_of_all_values(case, random):
    values, cuts = case
    parts = [Moments.of(part) for part in parts_of(values, cuts)]
    random.shuffle(parts)
    merged, finite = reduce(add, parts), values[values.isfinite()].double()
    assert int(merged.size) == len(values) and int(merged.count) == len(finite)
    assert int(merged.nans) == int(values.isnan().sum())
    assert int(merged.infs) == int(values.isinf().sum())
    assert int(merged.zeros) == int((values == 0).sum())
    if not len(finite):
        assert merged.std.isnan()
        return
    scale = float(finite.abs().max())
    assert float(merged.mean) == pytest.approx(float(finite.mean()), abs=1e-6 * scale)
    std = float(finite.std(correction=0))
    assert float(merged.std) == pytest.approx(std, rel=1e-4, abs=1e-6 * scale)
    assert float(merged.norm) == pytest.approx(float(finite.norm()), rel=1e-5)


def test_moments_of_large_maps_equal_those_of_each_row():
    values = torch.randn(30, 80_000) + 3
    values[3, ::7], values[5, 9] = 0, math.nan
    rows = zip(*map(Moments.of, values), strict=True)
    for found, wanted in zip(Moments.of(values), map(torch.stack, rows), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)


@settings(deadline=None)
@given(split_values())
def test_extremes_are_those_of_the_finite_values(case):
    known = case[0][case[0].isfinite()]
    ends = (known.min(), known.max()) if len(known) else (math.inf, -math.inf)
    assert [*map(float, extremes_of(case[0]))] == [*map(float, ends)]


@settings(deadline=None)
@given(split_values(), st.floats(0, 1))
def test_histograms_give_quantiles_within_a_bin(case, q):
    values, _ = case
    counts = BINS.index(values).bincount(minlength=BINS.size)
    assert int(counts[-1]) == int(values.isnan().sum())
    assert int(counts[0]) == int((values == -math.inf).sum())
    assert int(counts[-2]) == int((values == math.inf).sum())
    known = values[values.isfinite()].sort().values
    quantile = BINS.quantile(counts, q)
    if not len(known):
        assert quantile.isnan()
        return
    true = float(known[max(0, math.ceil(q * len(known)) - 1)].clamp(-(2.0**24), 2.0**24))
    assert abs(float(quantile) - true) <= abs(true) / BINS.parts + 2.0**BINS.first * 1.25


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0, math.inf, -math.inf]), min_size=1, max_size=30),
    st.integers(1, 6),
    st.randoms(),
)
def test_top_k_does_not_depend_on_the_order_of_parts(values, k, random):
    indices = list(range(len(values)))
    random.shuffle(indices)
    expected = sorted((-v, i) for v, i in zip(values, indices, strict=True) if v > -math.inf)[:k]
    table, numbers = torch.tensor(values)[None], torch.tensor(indices)
    cut = random.randrange(len(values) + 1)

    def top_of(part):
        found, marks = table[:, part], numbers[None, part] * 2
        return TopK.of(found, numbers[part], marks[..., None], marks, k)

    one, two = top_of(slice(cut)), top_of(slice(cut, None))
    for top in (top_of(slice(None)), one + two, two + one):
        listed = list(zip(top.values[0].tolist(), top.indices[0].tolist(), strict=True))
        missing = [(-math.inf, NONE)] * (k - len(expected))
        assert listed == [(-v, i) for v, i in expected] + missing
        for marks in (top.labels[0], top.positions[0, :, 0]):
            assert marks[: len(expected)].tolist() == [2 * i for _, i in expected]


@pytest.mark.parametrize("width", [1, 7, (1 << 18) + 3])
def test_nonzero_values_are_counted_exactly(width):
    values = torch.randint(0, 3, (5, width)).float()
    values[0, 0] = math.nan
    assert torch.equal(count_nonzero(values), values.count_nonzero(-1))


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.tensor([70000, 0], dtype=torch.int64), [70000.0, 0.0]),
        (torch.tensor([True, False]), [1.0, 0.0]),
        (torch.tensor([3 + 4j, 0]), [5.0, 0.0]),
        (torch.tensor([300.0, 1.0], dtype=torch.float16), [300.0, 1.0]),
        (torch.tensor([300.0, 1.0], dtype=torch.bfloat16), [300.0, 1.0]),
        (torch.tensor([2, 1], dtype=torch.uint8), [2.0, 1.0]),
        (torch.tensor([[0.0, 2.0]]).to_sparse(), [[0.0, 2.0]]),
        (torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.5, 0, torch.qint8), [0.5, 1.0]),
    ],
    ids=["int64", "bool", "complex", "half", "bfloat16", "uint8", "sparse", "quantized"],
)
def test_values_of_every_dtype_become_real(tensor, expected):
    values = as_real(tensor)
    assert values.dtype in (torch.float32, torch.float64)
    assert values.tolist() == expected


def test_half_precision_sums_do_not_overflow():
    moments = Moments.of(as_real(torch.full((4096,), 1000.0, dtype=torch.float16)))
    assert float(moments.mean) == 1000 and float(moments.std) == 0


def test_tensors_without_values_are_refused():
    with pytest.raises(TypeError, match="A meta tensor has no statistics"):
        as_real(torch.zeros(2, device="meta"))


def test_moments_of_empty_tensors_are_zero():
    moments = Moments.of(torch.zeros(2, 0))
    assert moments.size.tolist() == [0, 0] and moments.std.isnan().all()
    assert (moments + Moments.of(torch.ones(2, 3))).mean.tolist() == [1, 1]


def test_edges_belong_to_the_outer_bin():
    bins = LogBins(-2, 1, 2)
    edges = torch.tensor(bins.edges())
    assert bins.edges() == [0.25, 0.375, 0.5, 0.75, 1.0, 1.5, 2.0]
    assert bins.index(edges[:-1]).tolist() == list(range(8, 14))
    assert bins.index(-edges[:-1]).tolist() == list(range(6, 0, -1))
    assert bins.index(torch.tensor([1e-9, 1e9, -1e9, 1e-40, -0.0])).tolist() == [8, 13, 1, 7, 7]
    beyond_float32 = torch.tensor([1e300, -1e300], dtype=torch.float64)
    assert bins.index(beyond_float32).tolist() == [14, 0]
