"""The order of vertices in memory: when it changes, and that nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

from dorylax.errors import InputError
from dorylax.trainer import vertex_order
from dorylax.trainer.vertex_order import effective_order, in_order


def test_auto_is_community_where_features_are_larger_than_the_cache(data, monkeypatch):
    assert effective_order("auto", data, lambda: True) == "given"
    monkeypatch.setattr(vertex_order, "CACHE_BYTES", data.features.size * 4)
    assert effective_order("auto", data, lambda: True) == "given"
    monkeypatch.setattr(vertex_order, "CACHE_BYTES", data.features.size * 4 - 1)
    assert effective_order("auto", data, lambda: True) == "community"


def test_auto_leaves_alone_what_it_must(data, monkeypatch):
    monkeypatch.setattr(vertex_order, "CACHE_BYTES", 0)
    assert effective_order("auto", data, lambda: True) == "community"
    assert effective_order("auto", data, lambda: False) == "given"
    assert effective_order("auto", data.reorder(np.arange(data.graph.num_vertices)[::-1]), lambda: True) == "given"


def test_what_is_asked_for_is_done(data, monkeypatch):
    assert effective_order("community", data, lambda: True) == "community"
    monkeypatch.setattr(vertex_order, "CACHE_BYTES", 0)
    assert effective_order("given", data, lambda: True) == "given"


def test_communities_are_refused_where_rows_are_not_known_to_be_apart(data):
    with pytest.raises(InputError, match=r"single\.order=community needs a model that splits .*single\.order=given"):
        effective_order("community", data, lambda: False)


def test_trainers_of_one_data_set_share_its_order(data, shuffled):
    assert in_order(data, "given") == (data, 0.0)
    first, seconds = in_order(data, "community")
    assert seconds > 0
    assert in_order(data, "community") == (first, 0.0)
    assert len(shuffled) == 1
    np.testing.assert_array_equal(first.features, data.features[shuffled[0]])


def test_the_time_it_takes_is_charged_once(trainer, monkeypatch):
    monkeypatch.setattr("dorylax.trainer.one_machine.in_order", lambda data, order: (data, 1000.0))
    runner = trainer(epochs=1)
    assert runner.fit().timings.compile >= 1000
    assert runner.fit().timings.compile < 1000
