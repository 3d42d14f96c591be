"""Settings that would restrict clients: those that are not enforced stop the start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from odradek.broker.config import BrokerConfig, settings_with_effect
from odradek.broker.oauth_settings import HANDLER_CLASS, OAUTHBEARER_HANDLER
from odradek.broker.restrictions import NOT_ENFORCED, STANDARD_AUTHORIZER
from odradek.errors import FormatError, InvalidConfigError, OptionError
from odradek.kafka.settings import BrokerSettings
from odradek.messages.metadata.metadata_records import BeginTransactionRecord, UnknownRecord
from odradek.storage.directory.broker_config import BROKER_CONFIGS, broker_config_text
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from peers.broker_thread import start

OF_OTHER_NODES = (
    "controller|metadata|replica|leader|follower|remote|initial|broker|controlled|inter|unclean|auto.leader"
)
"""What settings of the quorum, of other brokers and of tiered storage begin with."""
OF_ABSENT_GROUPS = r"group\.(consumer|share|streams|coordinator)|share"
OF_SPEED = (
    "background|num|.*purgatory|queued.max.requests$|.*threads|.*load.buffer|compression|log.(dir|cleaner|initial)"
)
HARMLESS = re.compile(
    rf"""(?x)(?:{OF_OTHER_NODES}|{OF_ABSENT_GROUPS}|{OF_SPEED}
    |config\.providers                # a value that asks one of them is refused
    |early\.start\.listeners          # clients connect when the ACLs are loaded
    |(?:sasl\.(?:client|login|kerberos|mechanism)|security|socket\.connection)\b      # how the broker logs in elsewhere
    |sasl\.oauthbearer\.(?:assertion|client|scope$|token|jwt\.retriever)  # how clients get tokens
    |ssl\.(?:allow|endpoint|keymanager|protocol|provider|secure) # of the broker's own certificate, or the JVM's
    |errors\.deadletterqueue          # where share groups put what nobody could process: nowhere here
    |.*quota\.window                  # how quotas are measured
    |add\.partitions|offsets\.(?:commit|topic)|transaction\.(?:state|two)|internal|telemetry|unstable
    |kafka\.metrics|metric|server\.max|log\.(?:dir|cleaner|initial|local|roll|flush|index|message|preallocate|retention|segment)|producer\.id
    ).*"""
)


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig({name.replace("_", "."): text for name, text in settings.items()})


def test_each_setting_of_kafka_has_an_effect_or_is_refused_or_restricts_nobody() -> None:
    left = BROKER_CONFIGS.keys() - settings_with_effect() - NOT_ENFORCED.keys()
    assert [name for name in sorted(left) if not HARMLESS.fullmatch(name)] == []
    # Of one authorizer and one class that checks tokens: every other one stops the start.
    assert NOT_ENFORCED.keys() & settings_with_effect() == {"authorizer.class.name", HANDLER_CLASS}
    assert NOT_ENFORCED.keys() - BROKER_CONFIGS.keys() == {"super.users", "allow.everyone.if.no.acl.found"}


@pytest.mark.parametrize("name", NOT_ENFORCED)
def test_a_setting_that_restricts_and_is_not_enforced_stops_the_start(name: str) -> None:
    for harmless in NOT_ENFORCED[name]:
        BrokerConfig({name: f" {harmless}"})
    with pytest.raises(InvalidConfigError, match=f": {name}: restricts clients") as caught:
        BrokerConfig({name: "false" if name.startswith("allow") else "org.example.Restricting"})
    assert caught.value.config_name == name


@pytest.mark.parametrize("prefix", ["listener.name.plaintext.", "listener.name.plaintext.plain."])
def test_so_does_one_of_a_listener_of_this_node(prefix: str) -> None:
    name = f"{prefix}sasl.server.callback.handler.class"
    with pytest.raises(InvalidConfigError, match=f": {name}: restricts"):
        BrokerConfig({name: "org.example.Checked"})
    BrokerConfig({name.replace("plaintext", "controller"): "org.example.Checked"})


@pytest.mark.parametrize(
    "text",
    [
        "${file:/etc/kafka/secrets.properties:password}",
        "${env:PASSWORD}",
        'PlainLoginModule required user_a="${vault:secret/kafka:a}";',
    ],
)
def test_a_reference_to_a_config_provider_is_no_password(text: str) -> None:
    name = "listener.name.sasl.plain.sasl.jaas.config"
    with pytest.raises(InvalidConfigError, match=rf": {name}: refers to a config provider") as caught:
        BrokerConfig({name: text})
    assert text not in str(caught.value)
    with pytest.raises(OptionError, match=r"kafka\.sasl\.plain\.password refers to a config provider"):
        BrokerSettings.parse({"bootstrap.servers": "a:1", "sasl.plain.password": text})


@pytest.mark.parametrize("text", ["$1:secret", "${HOME}", "a{b:c}"])
def test_other_values_with_dollars_are_values(text: str) -> None:
    assert BrokerConfig({"ssl.keystore.password": text})["ssl.keystore.password"] == text


@pytest.mark.parametrize("kind", [18, 14, 4, 22, 24, 26, 99])
def test_a_record_that_is_unknown_stops_the_start(tmp_path: Path, kind: int) -> None:
    """An ACL, a quota, a setting, the removal of a user or a token, the end of a transaction with any of these."""
    with WritableLogDirectory(tmp_path / "data") as logs:
        logs.metadata.alter_delegation_tokens(lambda image: [BeginTransactionRecord(), UnknownRecord(kind, 1, b"")])
    with pytest.raises(FormatError, match=r"a record that is unknown: \w+.*, version 1; serve the folder by"):
        start(tmp_path / "data")


def test_an_override_for_a_host_by_name_would_be_for_nobody() -> None:
    assert config(max_connections_per_ip_overrides="127.0.0.1:2,0:0:0:0:0:0:0:1:3")[
        "max.connections.per.ip.overrides"
    ] == {"127.0.0.1": 2, "::1": 3}
    with pytest.raises(InvalidConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        config(max_connections_per_ip_overrides="localhost:2")


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.PLAINTEXT.max.connections",
        "listener.name.MTLS.ssl.client.auth",
        "listener.name.plaintext.ssl.client.auht",
        "listener.name.plaintext.max.conections",
        "plain.sasl.jaas.confg",
    ],
)
def test_a_listener_s_setting_whose_name_is_wrong_stops_the_start(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=f": {name}: (write the listener|no such setting)"):
        BrokerConfig({name: "1"})


@pytest.mark.parametrize("name", ["Super.Users", "SUPER.USERS", "super_users", " super.users", "superusers"])
def test_a_misspelt_setting_of_the_authorizer_is_one_of_the_broker(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"did you mean super\.users\?"):
        broker_config_text({name: "User:ann"})
    assert broker_config_text({"super.users": "User:ann"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.client.auth", "required"),
        ("ssl.client.auth", "requested"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("plain.sasl.jaas.config", "x"),
        (f"oauthbearer.{HANDLER_CLASS}", OAUTHBEARER_HANDLER),
    ],
)
def test_a_login_that_the_protocol_of_the_listener_does_not_have_stops_the_start(name: str, value: str) -> None:
    name = f"listener.name.plaintext.{name}"
    with pytest.raises(InvalidConfigError, match="PLAINTEXT checks no client by it") as caught:
        BrokerConfig({name: value})
    assert caught.value.config_name == name
    BrokerConfig({"listener.name.plaintext.ssl.client.auth": "none"})
    BrokerConfig({"listener.name.elsewhere.ssl.client.auth": "required"})


def test_the_settings_of_the_authorizer_are_for_the_one_that_there_is() -> None:
    of_it = {"super.users": "User:ann", "allow.everyone.if.no.acl.found": "false"}
    for name, text in of_it.items():
        with pytest.raises(InvalidConfigError, match=f": {name}: restricts clients"):
            BrokerConfig({name: text})
    assert BrokerConfig({"authorizer.class.name": STANDARD_AUTHORIZER, **of_it}).has_authorizer
    for other in ("kafka.security.authorizer.AclAuthorizer", "StandardAuthorizer"):
        with pytest.raises(InvalidConfigError, match=r": authorizer\.class\.name: restricts clients"):
            BrokerConfig({"authorizer.class.name": other, **of_it})
