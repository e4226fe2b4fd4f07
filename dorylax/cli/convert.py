"""`dorylax convert`: rewrites files of earlier versions in the present format."""

from __future__ import annotations

from pathlib import Path

import click

from dorylax.observers.progress import data_size
from dorylax.settings.errors import ConfigError
from dorylax.terminal.failures import told_if_interrupted
from dorylax.terminal.files import INPUT, OUTPUT_FOLDER
from dorylax.terminal.options import no_verify_option


@click.command()
@click.argument("old", metavar="OLD", type=INPUT)
@click.argument("new", metavar="NEW", type=OUTPUT_FOLDER)
@no_verify_option
def convert(*, old: Path, new: Path, no_verify: bool) -> None:
    """Rewrite a data set or a partition of an earlier version as a folder.

    OLD is an .npz archive or the folder of a partition. Shards are not converted: make the partition again.
    """
    if not old.exists():
        raise ConfigError(f"there is no file or folder {old}: give a data set or a partition of an earlier version")

    from dorylax.graph import array_folder
    from dorylax.graph.manifest import OLD_PARTITION, SUMMARY
    from dorylax.graph.partition import Partition

    with told_if_interrupted(f"{new} is not changed; the same command begins anew"):
        if (old / OLD_PARTITION[0]).is_file():
            if (old / SUMMARY).is_file():
                raise ConfigError(f"{old} has shards, which are not converted: make it again (dorylax partition)")
            Partition.load(old).save(new)
        else:
            array_folder.convert(old, new, verify=not no_verify)
    click.echo(f"{new}: {data_size(array_folder.size_on_disk(new))}")
