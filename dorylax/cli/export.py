"""`dorylax export`: a trained model as one file that runs where only JAX and NumPy are."""

from __future__ import annotations

from pathlib import Path

import click

from dorylax.cli.overrides import trust_option
from dorylax.cli.predict import choose_run, config_of
from dorylax.memory.process_limits import check_process
from dorylax.terminal.files import INPUT, OUTPUT
from dorylax.terminal.options import no_verify_option


@click.command()
@click.argument("run", type=INPUT)
@click.option("--seed", type=int, help="Which seed, if the run has several [default: the best by validation].")
@click.option("--out", metavar="FILE", required=True, type=OUTPUT, help="Write the model here.")
@no_verify_option
@trust_option
def export(*, run: Path, seed: int | None, out: Path, no_verify: bool, trust: bool) -> None:
    """Export a trained model: one file that needs only JAX and NumPy.

    RUN is a run directory. The file takes any graph: python FILE INPUT.npz OUTPUT.npy.
    """
    check_process()
    path = choose_run(run, seed)
    config = config_of(path, trust=trust)
    if no_verify:
        config = config.unverified()

    from dorylax.trainer import Trainer, prepare_data

    dataset = prepare_data(config.data)
    Trainer.from_config(config, dataset, run_directory=path, resume=True).export(out)
    click.echo(f"{config.model.name} of {path}: {out}, {out.stat().st_size:,} bytes")
