"""The commands of the command line, all loaded."""

import click

from traceconv.cli import cli

_CONTEXT = click.Context(cli)

COMMANDS = {name: cli.get_command(_CONTEXT, name) for name in cli.list_commands(_CONTEXT)}
"""By name, in order."""
