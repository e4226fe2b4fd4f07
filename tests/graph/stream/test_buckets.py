"""What is dealt to files comes back, in its order."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dorylax.graph.stream.buckets import Buckets


def test_rows_come_back_in_their_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows, which = rng.integers(0, 99, (500, 3)), rng.integers(0, 6, 500)
    which[which == 4] = 5  # one bucket stays empty
    with Buckets(tmp_path, "rows", 6) as buckets:
        for start in range(0, 500, 77):
            part = slice(start, start + 77)
            buckets.deal(which[part], rows[part].__getitem__)
    for bucket in buckets:
        found = buckets.read(bucket, rows.dtype, keep=bucket == 2).reshape(-1, 3)
        np.testing.assert_array_equal(found, rows[which == bucket])
    assert [path.name for path in tmp_path.iterdir()] == ["rows-2"]
    buckets.remove()
    assert list(tmp_path.iterdir()) == []
