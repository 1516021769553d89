"""Profiles: where commands find a cluster and how they log in, from a file of the user.

    default = "staging"

    [profiles.staging]
    zk = "zk1:2181,zk2:2181/canal"

    [profiles.production]
    url = "https://canal1.example.com:8089"
    user = "operator"
    password-file = "production.password"

A value on the command line counts most, then the profile of --profile, then the environment, then the profile of
CANAL_HA_PROFILE or `default`. The strongest of them that says where a cluster is says it alone. A login of a profile
goes elsewhere only if the command line names both the profile and the place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from canal_ha.config.toml_text import document_of, line_of
from canal_ha.errors import FileUnusable
from canal_ha.model.excerpt import excerpt, some
from canal_ha.model.near import did_you_mean

Command = TypeVar("Command", bound=Callable[..., Any])

PROFILE, CONFIG, ZK = "CANAL_HA_PROFILE", "CANAL_HA_CONFIG", "CANAL_HA_ZK"
PLACES = ("zk", "url", "server")  # in this order, if a command has several
_BESIDE = ("conf",)  # a place too, but no key of a profile
LOGINS = (
    ("user", "password", "password_file", "token_file"),
    ("tls_ca",),
    ("zk_auth_file", "zk_sasl_file"),
    ("zk_tls", "zk_tls_ca", "zk_tls_cert", "zk_tls_key"),
)
FILES = {
    *("password-file", "token-file", "tls-ca", "zk-auth-file", "zk-sasl-file"),
    *("zk-tls-ca", "zk-tls-cert", "zk-tls-key"),
}
SWITCHES = {"zk-tls"}
KEYS = (*PLACES, "user", *sorted(FILES | SWITCHES))


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile. values: by the names of the options' parameters, as `password_file`; paths are absolute."""

    name: str
    file: str
    values: Mapping[str, Any]

    def of(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the values that it has of some options."""
        return {name: self.values[name] for name in names if name in self.values}


def profile_option(command: Command) -> Command:
    """Add --profile to a command with any of the options --zk, --url, --server, --conf and those of logins.

    Put it above the decorators that make these options. The command gets their final values.
    """

    @wraps(command)
    def run(*args: Any, profile: str | None, **options: Any) -> None:
        context = click.get_current_context()
        explicit = context.get_parameter_source("profile") is ParameterSource.COMMANDLINE
        file = config_file(os.environ)
        found = read_profile(file, profile or "", needed=bool(os.environ.get(CONFIG)))
        command(*args, **(options | _resolved(context, options, found, explicit=explicit)))

    wrapper: Any = run  # has the options of the command, which its type does not tell
    made: Command = click.option(
        "--profile",
        envvar=PROFILE,
        metavar="NAME",
        help=f"Profile of ~/.config/canal-ha/config.toml, or of the file in {CONFIG}.  [env: {PROFILE}]",
    )(wrapper)
    return made


def zk_option(text: str) -> Callable[[Command], Command]:
    """Return the decorator that adds --zk. text: of its help."""
    return click.option("--zk", envvar=ZK, metavar="HOST:PORT[,...][/CHROOT]", help=f"{text}  [env: {ZK}]")


def config_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the file with the profiles."""
    if named := environ.get(CONFIG):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME")
    return Path(home or os.path.expanduser("~/.config"), "canal-ha", "config.toml")  # a user without a home is no error


def read_profile(file: Path, name: str, *, needed: bool = False) -> Profile | None:
    """Return a profile of a file. Raises FileUnusable with file, line, key and reason.

    file: its path.
    name: of the profile; "": the default one, if there is one.
    needed: whether the file has to exist also without a name.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        if not (name or needed):
            return None  # also for another user, who may not look into this home directory
        wants = f"profile {excerpt(name)} needs it" if name else f"{CONFIG} names it"
        raise FileUnusable(str(file), f"cannot be read ({error.strerror}), and {wants}") from error
    except ValueError as error:
        raise FileUnusable(str(file), f"is not UTF-8: {error}") from error
    return profile_of(text, file, name)


def profile_of(text: str, file: Path, name: str) -> Profile | None:
    """Return a profile of a file's text; see `read_profile`."""
    document = document_of(text, str(file))

    def wrong(reason: str, key: str, table: str | None = None) -> FileUnusable:
        where = "" if table is None else f"profile {excerpt(table)}: "
        where += f"{excerpt(key)}: " if key else ""
        return FileUnusable(str(file), where + reason, line_of(text, key, "profiles", table), key)

    for key in document.keys() - {"default", "profiles"}:
        raise wrong(f"unknown key{did_you_mean(key, ('default',)) or '; profiles are tables [profiles.NAME]'}", key)
    profiles = document.get("profiles", {})
    if not isinstance(profiles, dict):
        raise wrong("write a table [profiles.NAME]", "profiles")
    default = document.get("default", "")
    if not isinstance(default, str):
        raise wrong('expected the name of a profile, as "production"', "default")
    known = f"the profiles are: {some(profiles) or 'none'}"
    if default and default not in profiles:
        raise wrong(f"no profile {excerpt(default)}{did_you_mean(default, profiles)}; {known}", "default")
    if not (name or default):
        return None
    if (chosen := name or default) not in profiles:
        raise FileUnusable(str(file), f"has no profile {excerpt(chosen)}{did_you_mean(chosen, profiles)}; {known}")
    table = profiles[chosen]
    if not isinstance(table, dict):
        raise wrong(f"write a table [profiles.{chosen}]", chosen)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in ("password", "token"):
            raise wrong(
                f"the file has no secrets: put it into a file of its own and name it in {key}-file", key, chosen
            )
        if key not in KEYS:
            raise wrong(f"unknown key{did_you_mean(key, KEYS) or '; known: ' + ', '.join(KEYS)}", key, chosen)
        if not isinstance(value, bool if key in SWITCHES else str) or value == "":
            expected = "true or false" if key in SWITCHES else "a text in quotes"
            raise wrong(f"expected {expected}", key, chosen)
        if key in FILES:
            path = file.parent.absolute() / Path(str(value)).expanduser()
            if not path.is_file():
                raise wrong(
                    f"no file {excerpt(str(path))}; relative paths start at the directory of {file}", key, chosen
                )
            value = str(path)
        values[key.replace("-", "_")] = value
    return Profile(chosen, str(file), values)


def _resolved(
    context: click.Context, options: Mapping[str, Any], profile: Profile | None, *, explicit: bool
) -> dict[str, Any]:
    """Return the options that differ from what click has read. explicit: --profile names the profile."""

    def layer(names: tuple[str, ...], source: ParameterSource) -> dict[str, Any]:
        return {name: options[name] for name in names if context.get_parameter_source(name) is source}

    parameters = {each.name: each for each in context.command.params}
    places = tuple(name for name in (*PLACES, *_BESIDE) if name in parameters)
    typed = layer(places, ParameterSource.COMMANDLINE)
    exported = {} if explicit and profile else layer(places, ParameterSource.ENVIRONMENT)
    there = typed or exported
    if profile and not there:
        there = dict(list(profile.of(places).items())[:1])
        if not there:
            wanted = " or ".join(f"--{name}" for name in places)
            keys = " or ".join(name for name in places if name in PLACES)
            raise click.UsageError(f"profile {profile.name} of {profile.file} has no {keys}: add one, or give {wanted}")
    its_login = profile is not None and (explicit or not (typed or exported))
    groups = [(places, there)]
    for group in LOGINS:
        names = tuple(name for name in group if name in parameters)
        given = layer(names, ParameterSource.COMMANDLINE)
        if not (explicit and profile):
            given |= layer(names, ParameterSource.ENVIRONMENT)
        groups.append((names, given or (profile.of(names) if profile and its_login else {})))
    final: dict[str, Any] = {}
    for names, given in groups:
        for name in names:
            if name in given:
                option, value = parameters[name], given[name]
                final[name] = option.type_cast_value(
                    context, (value,) if _is_repeatable(option) and isinstance(value, str) else value
                )
            elif context.get_parameter_source(name) is ParameterSource.ENVIRONMENT:
                final[name] = parameters[name].to_info_dict()["default"]
    return final


def _is_repeatable(option: click.Parameter) -> bool:
    return isinstance(option, click.Option) and option.multiple
