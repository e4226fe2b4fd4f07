"""Run directories as training begins them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dorylax.store.run_directory import RunDirectory


def begun(path: str | os.PathLike[str], config: Mapping[str, Any], **options: Any) -> RunDirectory:
    """A directory with its first files; options of `RunDirectory.claim`."""
    run = RunDirectory.claim(path, config, **options)
    run.write_start(config)
    return run
