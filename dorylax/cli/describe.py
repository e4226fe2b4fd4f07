"""`dorylax describe`: the tasks that a model is split into, as a table, as JSON, as a flowchart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from dorylax.cli.options import configured, data_option
from dorylax.config import RunConfig
from dorylax.config.files import Overrides
from dorylax.memory.process_limits import check_process
from dorylax.near_matches import choose, close
from dorylax.settings.errors import ConfigError
from dorylax.store.durable import write_file
from dorylax.terminal.files import OUTPUT
from dorylax.terminal.options import json_option, option
from dorylax.terminal.output import print_json


@click.command()
@data_option
@option("--model NAME", "As for `dorylax train`.")
@configured(data="data.name", model="model.name")
@option("--passes all|none|NAME,…", "Which passes to apply.", default="all")
@option("--mermaid FILE", "Also write a Mermaid flowchart.", type=OUTPUT)
@json_option
def describe(overrides: Overrides, *, passes: str, mermaid: Path | None, as_json: bool) -> None:
    """Show the tasks that a model is split into.

    The model is that of `dorylax train` with these options, without training. The data set is read for its shapes and its
    graph's properties only. An asynchronous pipeline's program may gather before a product
    where a synchronous one gathers after it, so that fewer rows are stale.
    """
    check_process()

    from dorylax.program import PASSES, DataSpec, optimise, trace
    from dorylax.program.model.kinds import keywords_of
    from dorylax.program.view.describe import describe as table
    from dorylax.program.view.describe import description
    from dorylax.trainer.from_config import abstract_model, prepare_data
    from dorylax.trainer.model_parts import further_inputs

    config = RunConfig.resolve(overrides.values, code=overrides.code)
    applied = PASSES if config.pipeline is None else config.pipeline.passes
    chosen = _passes(passes, PASSES, applied)
    dataset = prepare_data(config.data)
    price = 0.0 if config.pipeline is None else config.pipeline.expected_stale_price
    built = abstract_model(config, dataset)
    keywords = keywords_of(built)
    further_inputs(dataset, keywords, config.model.name)  # raises an error if the data lack an input of the model
    program = optimise(trace(built, DataSpec.of(dataset, keywords)), chosen, stale_price=price)
    if mermaid is not None:
        write_file(mermaid, program.draw())
    if as_json:
        print_json({"schema": 1} | description(program))
    else:
        click.echo(table(program), nl=False)


def _passes(text: str, known: Sequence[str], applied: Sequence[str]) -> tuple[str, ...]:
    """Parse the value of `--passes` into known names; "all" means the passes that training applies."""
    if text in ("all", "none"):
        return tuple(applied) if text == "all" else ()
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            hint = choose(close(name, known), known)
            raise ConfigError(f"--passes takes all, none, or names separated by commas, got {name!r}: {hint}")
    return tuple(names)
