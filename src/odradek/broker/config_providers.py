"""Values of settings that stand elsewhere: in files, or in the environment (KIP-297, KIP-421).

    config.providers=file,env
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/run/secrets
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider

    ssl.keystore.password=${file:/run/secrets/tls.properties:keystore}      a key of a file of properties
    ssl.key.password=${dir:/run/secrets:key}                                the content of a file of a folder
    node.id=${env:NODE_ID}                                                  a variable

A reference that leads to nothing is an error, where Kafka takes the reference itself for the value.

Source in Kafka: `ConfigTransformer`, `FileConfigProvider`, `DirectoryConfigProvider`, `EnvVarConfigProvider`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

from odradek.errors import InvalidConfigError, OdradekError
from odradek.storage.config_def import split_words
from odradek.storage.formats.meta_properties import read_properties
from odradek.storage.regular_files import read_file

_PROVIDERS = "config.providers"
_PACKAGE = "org.apache.kafka.common.config.provider."
_REFERENCE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_MOST_BYTES = 1 << 20

Provider: TypeAlias = Callable[[str, str], str]
"""Returns a value by path and key; raises a ValueError that says why there is none."""


def resolved(config: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return settings with the values that they refer to, and without those of the providers.

    Args:
        config: The settings.
        environment: The variables of the environment.

    Raises:
        InvalidConfigError: A provider is none of Kafka's own, or a reference leads to nothing.
    """
    providers = {name: _provider(name, config, environment) for name in split_words(config.get(_PROVIDERS, ""))}
    return {
        name: _with_values(name, text, providers)
        for name, text in config.items()
        if name != _PROVIDERS and not name.startswith(f"{_PROVIDERS}.")
    }


def _with_values(setting: str, text: str, providers: Mapping[str, Provider]) -> str:
    def value(match: re.Match[str]) -> str:
        name, path, key = match.groups()
        if name not in providers:
            # Not shown: it may be a part of a password that only looks like one.
            raise InvalidConfigError(setting, f"refers to a config provider that {_PROVIDERS} does not name")
        try:
            return providers[name](path or "", key)
        except (ValueError, OSError, OdradekError) as error:
            raise InvalidConfigError(setting, f"{match[0]} leads to nothing: {error}") from None

    return _REFERENCE.sub(value, text)


def _provider(name: str, config: Mapping[str, str], environment: Mapping[str, str]) -> Provider:
    prefix = f"{_PROVIDERS}.{name}."
    kind = config.get(f"{prefix}class", "").strip()
    paths, pattern = f"{prefix}param.allowed.paths", f"{prefix}param.allowlist.pattern"
    is_of_env = kind == f"{_PACKAGE}EnvVarConfigProvider"
    if not is_of_env and kind not in (f"{_PACKAGE}FileConfigProvider", f"{_PACKAGE}DirectoryConfigProvider"):
        raise InvalidConfigError(f"{prefix}class", f"{kind or 'nothing'} is none of Kafka's own config providers")
    known = {f"{prefix}class", pattern if is_of_env else paths}
    unknown = next((one for one in config if one.startswith(prefix) and one not in known), None)
    if unknown is not None:
        # It may restrict what is read.
        raise InvalidConfigError(unknown, f"{kind} has no such parameter here")
    if is_of_env:
        return _of_environment(environment, config.get(pattern, ".*"), pattern)
    text = config.get(paths, "")
    # None if all are allowed, which a list of nothing but commas does not say.
    allowed = [Path(os.path.normpath(one)) for one in text.rstrip(",").split(",")] if text else None
    for path in allowed or ():
        if not path.is_absolute() or not path.exists():
            raise InvalidConfigError(paths, f"{path} is not absolute, or does not exist")
    return _of_file(allowed) if kind.endswith("FileConfigProvider") else _of_folder(allowed)


def _of_environment(environment: Mapping[str, str], pattern: str, setting: str) -> Provider:
    import re2

    from odradek.coordination.patterns import compiled_setting

    try:
        allowed = compiled_setting(pattern)
    except re2.error as error:
        raise InvalidConfigError(setting, f"is no pattern of RE2: {error}") from None

    def value(path: str, key: str) -> str:
        if path:
            raise ValueError("a variable has no path")
        if key not in environment or allowed.fullmatch(key) is None:
            raise ValueError("there is no such variable, or it is not allowed")
        return environment[key]

    return value


def _checked(path: str, allowed: list[Path] | None) -> Path:
    """Return a path, if it may be read."""
    normal = Path(os.path.normpath(path))
    if not path or (allowed is not None and not any(normal.is_relative_to(one) for one in allowed)):
        raise ValueError("the path is not allowed")
    return Path(path) if allowed is None else normal


def _of_file(allowed: list[Path] | None) -> Provider:
    properties = cache(partial(read_properties, encoding="utf-8"))

    def value(path: str, key: str) -> str:
        found = properties(_checked(path, allowed))
        if key not in found:
            raise ValueError("the file has no such key")
        return found[key]

    return value


def _of_folder(allowed: list[Path] | None) -> Provider:
    def value(path: str, key: str) -> str:
        folder = _checked(path, allowed)
        if key in ("", "..") or Path(key).name != key:
            raise ValueError("the key is not the name of a file")
        try:
            return read_file(folder / key, _MOST_BYTES).decode()
        except UnicodeDecodeError:
            raise ValueError("the file is not UTF-8") from None

    return value
