"""Whether a rank does more than its peers, or whether that is chance: the tests of figures."""

from itertools import combinations, product

import numpy as np
import pytest
from job_simulator.noise import SHAPES, draw

from traceconv.analysis.stragglers import significance
from traceconv.core.robust import SIGMA


@pytest.mark.parametrize("noise", SHAPES)
def test_values_stand_apart_by_chance_as_rarely_as_is_said(noise):
    """Whatever the noise, however few steps; and those that do are told."""
    rng = np.random.default_rng(7)
    for ranks, count in ((4, 3), (8, 2), (8, 5)):
        found = []
        for _ in range(250):
            more = significance.over_others(draw(noise, rng, ranks * count).reshape(count, ranks))
            found += [
                significance._apart(more[:, rank], np.delete(more, rank, axis=1))
                for rank in range(ranks)
            ]
        assert np.mean(np.array(found) < 0.01) < 0.025
    far, near = np.array([40.0, 41, 44]), rng.standard_normal((3, 7))
    assert significance._apart(far * SIGMA, near) < 1e-5
    assert significance._apart(far * 1e6, near) <= significance._apart(far, near)
    assert significance._apart(np.array([np.nan]), near) == 1.0


def test_a_permutation_test_counts_permutations():
    """The approximation against all 4^5 ways to draw one value per step."""
    scores = np.random.default_rng(3).normal(size=(5, 4))
    sums = np.array([sum(row) for row in product(*scores.tolist())])
    for total in np.quantile(sums, [0.9, 0.97, 0.99, 1.0]).tolist():
        exact = float((sums >= total - 1e-12).mean())
        found = significance._tail(scores, np.ones((5, 4), bool), total)
        assert found == pytest.approx(exact, rel=0.35)


def test_a_test_of_draws_counts_draws():
    """The share of all draws without replacement is what enumerating them gives."""
    values = np.random.default_rng(4).standard_t(3, 16)
    sums = np.array([values[list(one)].sum() for one in combinations(range(16), 4)])
    for share in (0.2, 0.02, 0.003):
        total = float(np.quantile(sums, 1 - share))
        exact = float((sums >= total - 1e-12).mean())
        assert significance.share_of_draws(values, 4, total) == pytest.approx(exact, rel=0.25)
    assert significance.share_of_draws(values, 4, float(sums.max())) == pytest.approx(1 / len(sums))
    alike = np.r_[np.ones(6), np.zeros(10)]
    assert significance.share_of_draws(alike, 4, 4.0) == pytest.approx(15 / len(sums))


def test_a_rank_that_scatters_more_is_not_slow():
    """Its values are far from those of others, on either side."""
    rng = np.random.default_rng(8)
    scatter = np.array([1, 1, 3, 1, 1, 2, 1, 1.0])
    named = 0
    for _ in range(150):
        table = rng.normal(0, 1e5, (4, 8, 8)) * scatter
        named += bool(significance._drawn(table, np.full(4, 0.0015 / 32)).any())
    assert named <= 1


def test_regular_steps_are_counted():
    """Of all ways to hit 3 of 12 steps, those that hit every fourth, or are as rare."""
    every = np.arange(12)
    found = significance._regular(every, np.array([1, 5, 9]))
    classes = {
        tuple(every[every % period == phase].tolist())
        for period in range(2, 8)
        for phase in range(period)
    }
    alike = sum(len(one) == 3 for one in classes)
    assert found == pytest.approx(alike / 220)
    assert significance._regular(every, np.array([1, 2, 7])) > 0.2


@pytest.mark.parametrize(("steps_", "ranks"), [(3, 2), (5, 2), (4, 4), (8, 8)])
@pytest.mark.parametrize("shape", ["normal", "t3", "lognormal"])
def test_chance_names_nobody(steps_, ranks, shape):
    """300 tables of noise, 4 places each."""
    rng = np.random.default_rng(steps_ * ranks)
    draw = {
        "normal": rng.standard_normal,
        "t3": lambda size: rng.standard_t(3, size),
        "lognormal": lambda size: rng.lognormal(size=size),
    }[shape]
    kind = np.array([0, 1, 1, 1])
    certain = 0
    for _ in range(300):
        table = 1e6 + 1e4 * draw((4, steps_, ranks))
        certain += significance.compared(table, kind, (ranks, 3 * ranks)).certain.any()
    assert certain <= 3


def test_ranks_that_stay_slow_for_a_while_are_not_slow():
    """Their values depend on those before, which makes means less sure."""
    rng = np.random.default_rng(5)
    certain = 0
    for _ in range(100):
        table = np.zeros((1, 30, 8))
        table[0, 0] = rng.standard_normal(8)
        for step in range(1, 30):
            table[0, step] = 0.8 * table[0, step - 1] + 0.6 * rng.standard_normal(8)
        found = significance.compared(1e6 + 1e4 * table, np.zeros(1, int), (8, 0))
        certain += bool((found.certain & (found.usual > found.unsure)).any())
    assert certain <= 5


def test_a_rank_that_gets_slower_all_the_time_is_slow():
    """Its own values depend on those before, those of the others do not: only it is certain, nearly
    always, while a rank whose values only wander around those of the others is not."""
    rng = np.random.default_rng(7)
    slower = wanders = 0
    for _ in range(30):
        table = 1e6 + 1e3 * rng.standard_normal((1, 16, 8))
        table[0, :, 5] += np.linspace(0, 1e5, 16)
        found = significance.compared(table, np.zeros(1, int), (8, 0))
        slower += found.certain[0].tolist() == [rank == 5 for rank in range(8)]
        table[0, :, 5] -= 5e4
        wanders += significance.compared(table, np.zeros(1, int), (8, 0)).certain.any()
    assert slower >= 27
    assert wanders == 0
