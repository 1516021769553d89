"""Profiles: where commands find a cluster and how they log in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from canal_ha.cli.main import group
from canal_ha.cli.profiles import config_file, read_profile
from canal_ha.errors import CanalError, FileUnusable
from lab import free_port


class Asked:
    """What a node got. logins: the Authorization header of each request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.logins: list[str | None] = []


@contextmanager
def node() -> Iterator[Asked]:
    """Serve refusals on a free port, and record who asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.logins.append(self.headers["Authorization"])
            self.send_error(403)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    asked = Asked(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that CANAL_HA_CONFIG names; no other variable of ours is set."""
    for name in ("USER", "PASSWORD_FILE", "TOKEN_FILE", "TLS_CA", "PROFILE", "ZK"):
        monkeypatch.delenv(f"CANAL_HA_{name}", raising=False)
    file = tmp_path / "config.toml"
    monkeypatch.setenv("CANAL_HA_CONFIG", str(file))
    (tmp_path / "token").write_text("tell\n")
    return file


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    """Run a command."""
    return CliRunner().invoke(group, arguments, env=env)


def test_a_profile_names_the_node_and_the_login(config: Path) -> None:
    """--profile, CANAL_HA_PROFILE and `default` choose one; its relative paths start beside the file."""
    with node() as one, node() as two:
        config.write_text(
            f'default = "one"\n[profiles.one]\nurl = "{one.url}"\ntoken-file = "token"\n'
            f'[profiles.two]\nurl = "{two.url}"\nuser = "ops"\n'
        )
        run("status")
        run("destination", "list")
        run("destination", "remove", "example", "--yes")  # its --url can be given several times
        assert one.logins == ["Bearer tell"] * 3
        run("status", "--profile", "two")
        run("status", env={"CANAL_HA_PROFILE": "two"})
        assert two.logins == ["Basic b3BzOg=="] * 2
        assert len(one.logins) == 3


def test_a_login_of_a_profile_goes_nowhere_else_by_itself(config: Path) -> None:
    """An address on the command line gets it only with --profile."""
    with node() as own, node() as other:
        config.write_text(f'default = "own"\n[profiles.own]\nurl = "{own.url}"\ntoken-file = "token"\n')
        run("status", "--url", other.url)
        run("status", "--url", other.url, "--profile", "own")
        assert other.logins == [None, "Bearer tell"]
        assert not own.logins


def test_the_command_line_beats_the_profile_and_the_profile_on_it_beats_the_environment(config: Path) -> None:
    """The strongest that says where the cluster is says it alone, so --url beside CANAL_HA_ZK is no conflict."""
    zk = {"CANAL_HA_ZK": f"127.0.0.1:{free_port()}"}
    with node() as own, node() as other:
        config.write_text(f'[profiles.own]\nurl = "{own.url}"\n')
        run("status", "--url", other.url, env=zk)
        assert len(other.logins) == 1
        run("status", "--profile", "own", env=zk)
        assert len(own.logins) == 1
        login = {"CANAL_HA_USER": "somebody", "CANAL_HA_PROFILE": "own"}
        run("status", env=login)
        run("status", "--profile", "own", env=login)
        assert own.logins[1:] == ["Basic c29tZWJvZHk6", None]


def test_a_login_is_not_put_together_from_two_places(config: Path) -> None:
    """--user gets no token of the profile, which a node would take instead."""
    with node() as own:
        config.write_text(f'default = "own"\n[profiles.own]\nurl = "{own.url}"\ntoken-file = "token"\n')
        run("status", "--user", "ops")
        assert own.logins == ["Basic b3BzOg=="]


@pytest.mark.parametrize("command", ["status", "client --destination x --retry", "cursor show --destination x"])
def test_canal_ha_zk_is_the_default_of_zk(config: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command with --zk asks the ZooKeeper of the variable."""
    monkeypatch.setattr("canal_ha.zookeeper.reading.CONNECT_MOST_S", 0.1)
    config.write_text("")
    port = free_port()
    ended = run(
        *command.split(), *("--idle-exit", "0.5") * ("client" in command), env={"CANAL_HA_ZK": f"127.0.0.1:{port}"}
    )
    assert isinstance(ended.exception, CanalError)
    assert f"127.0.0.1:{port}" in str(ended.exception) or "ZooKeeper" in str(ended.exception)


def test_a_profile_without_an_address_for_the_command_does_not_reach_the_local_node(config: Path) -> None:
    """`destination pause` needs a URL; with a profile that has only ZooKeeper's it would ask this machine's node."""
    config.write_text('[profiles.cluster]\nzk = "zk1:2181"\n')
    ended = run("destination", "pause", "shop", "--profile", "cluster")
    assert ended.exit_code == 2
    assert f"profile cluster of {config} has no url: add one, or give --url or --conf" in ended.output


@pytest.mark.parametrize(("text", "line", "reason"), [
    ("[profiles.a\n", 1, "is not TOML"),
    ("\n[profile.a]\nzk = 'x'\n", 2, "profile: unknown key; profiles are tables [profiles.NAME]"),
    ("default = 'b'\n[profiles.bb]\n", 1, "default: no profile b, did you mean bb?; the profiles are: bb"),
    ("[profiles.a]\nzk = 'x'\npasword-file = 'token'\n", 3, "profile a: pasword-file: unknown key, did you mean passw"),
    ("[profiles.b]\nzk = 'x'\n[profiles.a]\nzk = 7\n", 4, "profile a: zk: expected a text in quotes"),
    ("[profiles.a]\nzk-tls = 'yes'\n", 2, "profile a: zk-tls: expected true or false"),
    ("[profiles.a]\nzk = 'x'\npassword-file = 'none'\n", 3, "profile a: password-file: no file /"),
    ("[profiles.a]\npassword = 's3cret'\n", 2, "put it into a file of its own and name it in password-file"),
    ("[profiles.ab]\nzk = 'x'\n", 0, "has no profile a, did you mean ab?; the profiles are: ab"),
    ("profiles = 3\n", 1, "profiles: write a table [profiles.NAME]"),
])  # fmt: skip
def test_what_is_wrong_in_the_file_is_named_with_line_and_key(config: Path, text: str, line: int, reason: str) -> None:
    """The error has the file, the line, the key and what to do, and no secret."""
    config.write_text(text)
    with pytest.raises(FileUnusable) as caught:
        read_profile(config, "a")
    assert (caught.value.file, caught.value.line) == (str(config), line)
    assert reason in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_missing_file_matters_only_to_those_who_name_it(config: Path) -> None:
    """Without a profile and without CANAL_HA_CONFIG there is none."""
    assert read_profile(config, "") is None
    for name, needed in (("a", False), ("", True)):
        with pytest.raises(FileUnusable, match="cannot be read \\(No such file or directory\\), and"):
            read_profile(config, name, needed=needed)


def test_the_file_is_where_programs_have_theirs() -> None:
    """CANAL_HA_CONFIG, else the directory of XDG, else ~/.config."""
    assert config_file({"CANAL_HA_CONFIG": "/x/y"}) == Path("/x/y")
    assert config_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/canal-ha/config.toml")
    assert config_file({}) == Path.home() / ".config/canal-ha/config.toml"


def test_the_example_of_the_documentation_is_valid(tmp_path: Path) -> None:
    """docs/how-to/use-profiles.md shows a file that commands accept."""
    page = (Path(__file__).parents[2] / "docs/how-to/use-profiles.md").read_text()
    file = tmp_path / "config.toml"
    file.write_text(page.partition("```toml\n")[2].partition("```")[0])
    for name in ("production.password", "ca.pem"):
        (tmp_path / name).touch()
    for name in ("", "staging", "production"):
        assert read_profile(file, name)
