"""Settings that refer to files and to the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.config_providers import resolved
from odradek.errors import InvalidConfigError

PACKAGE = "org.apache.kafka.common.config.provider."
KINDS = {"file": "File", "dir": "Directory", "env": "EnvVar"}
PROVIDERS = {"config.providers": ",".join(KINDS)} | {
    f"config.providers.{name}.class": f"{PACKAGE}{kind}ConfigProvider" for name, kind in KINDS.items()
}
ENVIRONMENT = {"PASSWORD": "s3cret", "PORT": "9093", "EMPTY": ""}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "of.properties").write_text("password=s3cret\nempty=\n")
    (folder / "password").write_text("s3cret\n")
    # As Kubernetes makes it.
    (folder / "linked").symlink_to("password")
    (tmp_path / "outside").write_text("s3cret")
    return folder


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env:PASSWORD}", "s3cret"),
        ("SSL://:${env:PORT},PLAINTEXT://:${env:PORT}${env:EMPTY}", "SSL://:9093,PLAINTEXT://:9093"),
        ("${file:FOLDER/of.properties:password}", "s3cret"),
        ("${file:FOLDER/of.properties:empty}", ""),
        # Nothing is taken away at the end of a file, as in Kafka.
        ("${dir:FOLDER:password}", "s3cret\n"),
        ("${dir:FOLDER:linked}", "s3cret\n"),
        ("$1 ${} {a:b}", "$1 ${} {a:b}"),
    ],
)
def test_a_reference_is_replaced_by_its_value(secrets: Path, text: str, value: str) -> None:
    config = {**PROVIDERS, "some.setting": text.replace("FOLDER", str(secrets))}
    assert resolved(config, ENVIRONMENT) == {"some.setting": value}


@pytest.mark.parametrize(
    "text",
    [
        "${env:NO_SUCH}",
        "${env:path:PASSWORD}",
        "${file:FOLDER/of.properties:no.such}",
        "${file:FOLDER/no.such:password}",
        "${file:FOLDER:password}",
        "${file:password}",
        "${dir:FOLDER:no.such}",
        "${dir:FOLDER:../outside}",
        "${dir:FOLDER:..}",
        "${dir:FOLDER:}",
    ],
)
def test_a_reference_that_leads_to_nothing_is_an_error_without_a_secret(secrets: Path, text: str) -> None:
    text = text.replace("FOLDER", str(secrets))
    with pytest.raises(InvalidConfigError, match="leads to nothing") as refused:
        resolved({**PROVIDERS, "ssl.key.password": text}, ENVIRONMENT)
    assert "ssl.key.password" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_reference_to_an_unknown_provider_is_not_shown() -> None:
    """It may be a part of a password."""
    with pytest.raises(InvalidConfigError, match=r"ssl\.key\.password: refers to a config provider") as refused:
        resolved({**PROVIDERS, "ssl.key.password": "s3cret${a:b}"}, ENVIRONMENT)
    assert "${" not in str(refused.value)


def test_what_a_provider_may_read_is_limited(secrets: Path) -> None:
    limits = {
        "config.providers.file.param.allowed.paths": str(secrets),
        "config.providers.dir.param.allowed.paths": str(secrets),
        "config.providers.env.param.allowlist.pattern": "P.*",
    }
    for text in (f"${{file:{secrets}/of.properties:password}}", f"${{dir:{secrets}:password}}", "${env:PORT}"):
        resolved({**PROVIDERS, **limits, "a": text}, ENVIRONMENT)
    for text in (
        f"${{file:{secrets}/../outside:password}}",
        f"${{dir:{secrets.parent}:outside}}",
        f"${{dir:{secrets}-too:password}}",
        "${env:EMPTY}",
    ):
        with pytest.raises(InvalidConfigError, match="allowed"):
            resolved({**PROVIDERS, **limits, "a": text}, ENVIRONMENT)


@pytest.mark.parametrize("paths", [",", ",,"])
def test_a_list_of_no_paths_allows_nothing(secrets: Path, paths: str) -> None:
    limits = {"config.providers.file.param.allowed.paths": paths, "config.providers.dir.param.allowed.paths": paths}
    for text in (f"${{file:{secrets}/of.properties:password}}", f"${{dir:{secrets}:password}}"):
        with pytest.raises(InvalidConfigError, match="allowed"):
            resolved({**PROVIDERS, **limits, "a": text}, ENVIRONMENT)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.providers.file.class", "com.example.Vault"),
        ("config.providers.file.class", ""),
        ("config.providers.file.param.allowed.paths", "relative"),
        ("config.providers.file.param.allowed.paths", "/,,/"),
        ("config.providers.file.param.allowed.paths", "/no/such/folder"),
        ("config.providers.file.param.allowlist.pattern", ".*"),
        ("config.providers.env.param.allowlist.pattern", "("),
    ],
)
def test_a_provider_that_is_not_known_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        resolved({**PROVIDERS, name: text}, {})
    assert name in str(refused.value)


def test_settings_without_references_stay() -> None:
    assert resolved({"node.id": "1"}, {}) == {"node.id": "1"}
