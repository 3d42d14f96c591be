"""The users of a log directory that log in by SCRAM.

As topics: they are read without the lock, also beside a running broker, and each change takes the lock.

Source in Kafka: `StorageTool`, `ScramParser`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from odradek.coordination.scram.credentials import MECHANISMS, MECHANISMS_BY_TYPE, credential_of_password
from odradek.errors import LogError, OptionError
from odradek.inspection.log_files import locate_log_directory
from odradek.messages.metadata.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.metadata.metadata_log import load_metadata


def scram_credentials(path: Path) -> list[UserScramCredentialRecord]:
    """Return the credentials of all users, by name and mechanism.

    Raises:
        LogError: The folder is not a log directory.
        FormatError: Its metadata are damaged.
    """
    locate_log_directory(path)
    by_mechanism = load_metadata(path).image.scram_credentials
    return sorted(
        one for users in by_mechanism.values() for one in users.values() if one.mechanism in MECHANISMS_BY_TYPE
    )


def add_user(path: Path, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
    """Give a user a password, in place of what it had for these mechanisms; an empty folder becomes a log directory.

    Raises:
        OptionError: No client, or not every one, could log in with such a name or password.
        LogError: The folder is in use, or is not a log directory.
    """
    try:
        credentials = [credential_of_password(name, MECHANISMS[one], password, iterations) for one in mechanisms]
    except ValueError as error:
        raise OptionError(str(error)) from None
    with WritableLogDirectory(path) as logs:
        logs.metadata.alter_scram_credentials(credentials)


def remove_user(path: Path, name: str, mechanisms: Sequence[str]) -> None:
    """Remove what a user can log in with by these mechanisms.

    Raises:
        LogError: The user has nothing of that kind; or the folder is in use, or is not a log directory.
    """
    types = {MECHANISMS[one].type for one in mechanisms}
    found = [one for one in scram_credentials(path) if one.name == name and one.mechanism in types]
    if not found:
        raise LogError(f"{path}: there is no user {name} of {' or '.join(mechanisms)}")
    with WritableLogDirectory(path) as logs:
        logs.metadata.alter_scram_credentials(
            [RemoveUserScramCredentialRecord(one.name, one.mechanism) for one in found]
        )
