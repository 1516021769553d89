"""The command line, from the click commands of canal_ha.cli."""

from __future__ import annotations

from collections.abc import Iterator

import click

from canal_ha.cli.main import COMMANDS, group
from docs.generate.markdown import code, prose, table


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command that does something, with its full name: groups give their subcommands."""
    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None, f"{name} is in the table of commands and has no module"
        yield from _below(f"canal-ha {name}", command)


def _below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for inner, each in command.commands.items():
            yield from _below(f"{name} {inner}", each)
    else:
        yield name, command


def default_of(parameter: click.Parameter) -> str:
    """Return the default as typed on a command line; blank for switches and for what has none."""
    value = parameter.to_info_dict()["default"]
    if value is None or value == "" or value == () or isinstance(value, bool) or callable(value):
        return ""
    return str(value)


def row(parameter: click.Parameter) -> tuple[str, ...]:
    """Return one line of the table of options."""
    if not isinstance(parameter, click.Option):
        return code(parameter.human_readable_name), "required" if parameter.required else "", "An argument."
    takes = "" if parameter.is_flag else " " + (parameter.metavar or parameter.type.name.split()[0].upper())
    if isinstance(parameter.type, click.Choice):
        takes = " " + "|".join(parameter.type.choices)
    note = "required" if parameter.required else code(default_of(parameter))
    return (
        code("/".join(parameter.opts) + takes),
        note,
        prose(parameter.help or "") + (" May be given several times." if parameter.multiple else ""),
    )


def page() -> str:
    """Return a section for each command."""
    parts = []
    for name, command in commands():
        text = "\n\n".join(prose(each) for each in (command.help or "").split("\n\n"))
        rows = [row(parameter) for parameter in command.params]
        parts.append(f"## {name}\n\n{text}\n")
        if rows:
            parts.append(table(("option", "default", "meaning"), rows))
    return "\n".join(parts)
