"""Names tell everything apart that must not be mixed up."""

from __future__ import annotations

import itertools

from dorylax.serverless.task import TaskKey
from dorylax.serverless.wire import names

KEYS = [TaskKey(*numbers) for numbers in itertools.product((0, 1, 11), repeat=4)]


def test_no_two_things_have_one_name():
    found = [
        *(names.artefact(digit * 64) for digit in "01"),
        *(names.weights(version) for version in (0, 1, 11)),
        *(names.rows(key, part) for key in KEYS for part in (0, 1, 11)),
        *(make(key) for key in KEYS for make in (names.free, names.result_rows, names.result_sums)),
    ]
    assert len(set(found)) == len(found)
