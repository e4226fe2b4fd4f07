"""What docs/contributing.md says adding a part takes is what it takes: each change applies, and what it adds works."""

from __future__ import annotations

import json
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
    "A model": """
import jax.numpy as jnp
from flax import nnx
from dorylax.config import RunConfig
from dorylax.graph.datasets import load
from dorylax.layers import build
data = load("communities", size="tiny")
model = build("tag", data.num_features, data.num_classes, {"num_propagations": 2}, nnx.Rngs(0))
assert model(data.graph, jnp.asarray(data.features)).shape == (1000, data.num_classes)
assert len(model.convs[1].kernels) == 3
assert RunConfig.resolve({"model.name": "tag"}).model.num_propagations == 3
""",
    "A tensor backend": """
from dorylax.net.keys import RunKeys
from dorylax.pipeline.invokers import make_invoker
from dorylax.ray_cluster.config import RayConfig
from dorylax.serverless.config import TensorConfig
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
    num_classes, multilabel, kind = 3, True, "several"
objective = Objective.of(None, Data(), RunConfig.resolve({"train.metric": "jaccard"}).train.metric)
assert objective.score(np.array([[1, 1, 2]]), 0) == 0.25
assert "test Jaccard index 25.0 %" in describe_summary({"test_score": 0.25, "metric": objective.metric})
""",
    "An instance type": """
from dorylax.cost.instance import INSTANCES
assert INSTANCES["r5.4xlarge"].price == 2 * INSTANCES["r5.2xlarge"].price
""",
}

_USE_ALL = """
import json, sys, traceback
errors = {}
for title, use in json.load(sys.stdin).items():
    try:
        exec(compile(use, title, "exec"), {"__name__": "use"})
        errors[title] = ""
    except Exception:
        errors[title] = traceback.format_exc()
print(json.dumps(errors))
"""


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The errors of all changes and uses, by title: all in one copy of the sources, and in one process."""
    folder = tmp_path_factory.mktemp("changed")
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "kernel"))
    shutil.copy(ROOT / "pyproject.toml", folder)  # what tells a checkout

    def run(words: list[str], given: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, input=given, cwd=folder, capture_output=True, text=True, check=False)

    errors = {title: run(["git", "apply", "-"], change).stderr for title, change in CHANGES.items()}
    done = run([sys.executable, "-c", _USE_ALL], json.dumps(USES))
    assert done.returncode == 0, done.stderr
    used = json.loads(done.stdout.splitlines()[-1])
    return {title: errors[title] + used[title] for title in CHANGES}


@pytest.mark.parametrize("title", CHANGES)
def test_a_part_is_added_in_two_files_at_most(title: str, tried: dict[str, str]) -> None:
    files = re.findall(r"^\+\+\+ b/(.*)$", CHANGES[title], re.MULTILINE)
    assert 1 <= len(files) <= 2
    assert tried[title] == ""


def test_every_change_of_the_page_is_tried() -> None:
    assert CHANGES.keys() == USES.keys()
    assert PAGE.count("```diff") == len(CHANGES)
