"""The commands of profiles, which are named clusters in a file."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiokclient.cli.grammar import AdminCommand, Argument, Command, WrongUseError
from aiokclient.cli.librdkafka import IGNORED, LOGIN, RENAMED, TEXTS, is_secret
from aiokclient.cli.output import Result, Row, Table, rows_result, write_result, write_text
from aiokclient.cli.profiles import NAME_VARIABLE, OWN, profiles_path, read_document

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin

HIDDEN = "***"
NAME = Argument("NAME", "The profile; the default one without a name.", "?", completes="profiles")
_DEFAULT = re.compile(r"^(default\s*=\s*)(\"[^\"\n]*\"|'[^'\n]*')", re.MULTILINE)
_TABLE = re.compile(r"^\s*\[", re.MULTILINE)


class ListProfiles(Command):
    """List the profiles.

    The default profile is the one of the environment variable AIOKCLIENT_PROFILE, or of the file.
    """

    verb = "list"
    connects = False

    def run(self, given: Namespace) -> int:
        """Print a row for each profile."""
        document = read_document()
        default = default_name(document)
        rows: list[Row] = [
            {
                "name": name,
                "default": name == default,
                "protected": bool(profile.get("protected")),
                "bootstrap_servers": profile.get("bootstrap_servers"),
            }
            for name, profile in document.get("profiles", {}).items()
        ]
        columns = ["name", "default", "protected", "bootstrap_servers"]
        return write_result(rows_result(columns, rows), given)


class ShowProfile(Command):
    """Show the options of a profile, with *** for secrets and for options that are not known."""

    verb = "show"
    arguments = (NAME,)
    connects = False

    def run(self, given: Namespace) -> int:
        """Print the options of a profile."""
        name, profile = find_profile(given.name)
        public = public_options()
        options = {
            option: shown_value(option, value, public)
            for option, value in profile.items()
            if option not in OWN
        }
        registry = {
            option: url_without_login(str(value)) if option == "url" else HIDDEN
            for option, value in profile.get("registry", {}).items()
        }
        is_protected = bool(profile.get("protected"))
        data = {"name": name, "protected": is_protected, "options": options, "registry": registry}
        rows: list[Row] = [
            {"option": "protected", "value": is_protected},
            *({"option": option, "value": value} for option, value in options.items()),
            *({"option": f"registry.{each}", "value": value} for each, value in registry.items()),
        ]
        return write_result(Result(data, [Table(["option", "value"], rows)]), given)


class UseProfile(Command):
    """Make a profile the default one. The rest of the file, with its comments, stays as it is."""

    verb = "use"
    arguments = (Argument("NAME", "The profile.", completes="profiles"),)
    connects = False
    prints_result = False

    def run(self, given: Namespace) -> int:
        """Write the name of the default profile to the file."""
        find_profile(given.name)
        path = Path(profiles_path())
        replace_text(path, with_default(path.read_text(), given.name))
        write_text(f"{given.name} is the default profile.\n")
        return 0


class CheckProfile(AdminCommand):
    """Connect to the cluster of a profile, and show its id and its brokers."""

    verb = "check"
    arguments = (NAME,)

    def run(self, given: Namespace) -> int:
        """Connect with the profile that is the argument, not an option."""
        # The connection reads the file again, and warns then.
        given.profile, _ = find_profile(given.name or given.profile, warns=False)
        return super().run(given)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the id and the brokers of the cluster."""
        cluster = await admin.describe_cluster()
        brokers = [f"{each.host}:{each.port}" for each in cluster.brokers]
        row = {"name": given.profile, "cluster_id": cluster.cluster_id, "brokers": brokers}
        return rows_result(list(row), [row])


def default_name(document: Mapping[str, Any]) -> str | None:
    """Return the name of the profile that commands use if none is given."""
    return os.environ.get(NAME_VARIABLE) or document.get("default")


def find_profile(name: str | None, *, warns: bool = True) -> tuple[str, Mapping[str, Any]]:
    """Return a profile as it is in the file, and its name. Raises WrongUseError."""
    document = read_document(warns=warns)
    profiles: Mapping[str, Mapping[str, Any]] = document.get("profiles", {})
    wanted = name or default_name(document)
    if not wanted:
        raise WrongUseError(f"No profile is the default one in {profiles_path()}. Give a name.")
    if wanted not in profiles:
        known = ", ".join(profiles) or "none"
        raise WrongUseError(f"There is no profile {wanted} in {profiles_path()}. Known: {known}.")
    return wanted, profiles[wanted]


def public_options() -> Collection[str]:
    """Return the names of the options that are known, and not secret."""
    from aiokclient import Admin, Consumer, Producer

    declared = [
        each
        for client in (Admin, Consumer, Producer)
        for each in client.config_type.declarations.values()
    ]
    foreign = {name.replace(".", "_") for name in (*RENAMED, *TEXTS, *LOGIN, *IGNORED)}
    names = foreign.union(each.name for each in declared)
    secret = {each.name for each in declared if each.secret}
    return {name for name in names - secret if not is_secret(name)}


def shown_value(option: str, value: Any, public: Collection[str]) -> Any:
    """Return the value of an option, or *** for a secret, and for where a secret comes from."""
    return value if option in public and not isinstance(value, dict) else HIDDEN


def url_without_login(url: str) -> str:
    """Return a URL without the user and the password that it may have before the host."""
    return re.sub(r"//[^/@]*@", f"//{HIDDEN}@", url)


def with_default(text: str, name: str) -> str:
    """Return the file of profiles with another default. Raises WrongUseError if that is hard."""
    import json
    import tomllib

    value = json.dumps(name, ensure_ascii=False)
    table = _TABLE.search(text)
    end = table.start() if table is not None else len(text)
    head, changes = _DEFAULT.subn(lambda found: found[1] + value, text[:end], count=1)
    changed = head + text[end:] if changes else f"default = {value}\n{text}"
    wanted = {**tomllib.loads(text), "default": name}
    try:
        is_right = tomllib.loads(changed) == wanted
    except ValueError:
        is_right = False
    if not is_right:
        raise WrongUseError(
            f"{profiles_path()} has a form that cannot be changed here. Write default = {value} "
            "at its beginning."
        )
    return changed


def replace_text(path: Path, text: str) -> None:
    """Replace a file at once, so that a crash cannot leave half of it. Its mode stays the same.

    Raises WrongUseError if the file cannot be written.
    """
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        mode = target.stat().st_mode & 0o777
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.chmod(mode)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise WrongUseError(f"{path} cannot be written: {error.strerror}.") from None


COMMANDS: Sequence[type[Command]] = (ListProfiles, ShowProfile, UseProfile, CheckProfile)
