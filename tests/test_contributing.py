"""What docs/contributing.md says adding a part takes is what it takes: each change applies, and what it adds works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "contributing.md").read_text()
SOURCES = ("dorylax", "layers", "pipeline", "serverless", "experiments")
CHANGES = dict(re.findall(r"^## ([^\n]*)\n(?:(?!^## ).)*?^```diff\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
USES = {
    "A partitioner": """
from dorylax.graph.datasets import load
from dorylax.graph.partition import partition
from dorylax.pipeline.config import PipelineConfig
graph = load("communities", size="tiny").graph
assert partition(graph, 3, method="striped").parts[:4].tolist() == [0, 1, 2, 0]
assert PipelineConfig(partitioner="striped").partitioner == "striped"
""",
    "A tensor backend": """
from dorylax.pipeline.invokers import make_invoker
from dorylax.ray_cluster.config import RayConfig
from dorylax.serverless.config import TensorConfig
from dorylax.serverless.data.keys import RunKeys
tensor = TensorConfig(backend="threaded", workers=1)
assert "threaded: in worker processes of two threads each" in TensorConfig.model_fields["backend"].description
make_invoker(tensor, RunKeys.make(), 1, RayConfig()).close()
""",
    "A metric": """
import numpy as np
from dorylax.config import RunConfig
from dorylax.observers.progress import describe_summary
from dorylax.trainer.step.objective import Objective
class Data:
    num_classes, multilabel = 3, True
objective = Objective.of(None, Data(), RunConfig.resolve({"train.metric": "jaccard"}).train.metric)
assert objective.score(np.array([[1, 1, 2]]), 0) == 0.25
assert "test Jaccard index 25.0 %" in describe_summary({"test_score": 0.25, "metric": objective.metric})
""",
    "An instance type": """
from dorylax.cost.instance import INSTANCES
assert INSTANCES["r5.4xlarge"].price == 2 * INSTANCES["r5.2xlarge"].price
""",
}


@pytest.mark.parametrize("title", CHANGES)
def test_a_part_is_added_in_two_files_at_most(title: str, tmp_path: Path) -> None:
    files = re.findall(r"^\+\+\+ b/(.*)$", CHANGES[title], re.MULTILINE)
    assert 1 <= len(files) <= 2
    for folder in SOURCES:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "kernel"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)  # what tells a checkout

    def run(words: list[str], given: str | None = None) -> None:
        done = subprocess.run(words, input=given, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    run(["git", "apply", "-"], CHANGES[title])
    run([sys.executable, "-c", USES[title]])


def test_every_change_of_the_page_is_tried() -> None:
    assert CHANGES.keys() == USES.keys()
    assert PAGE.count("```diff") == len(CHANGES)
