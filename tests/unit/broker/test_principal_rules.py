"""The rules of `ssl.principal.mapping.rules`: cases of Apache Kafka's documentation and of its tests."""

from __future__ import annotations

import re

import pytest

from odradek.broker.config import BrokerConfig
from odradek.broker.principal_rules import PrincipalRules
from odradek.errors import InvalidConfigError

RULES = """
    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,
    RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,
    RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,
    RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,
    DEFAULT
"""


@pytest.mark.parametrize(
    ("rules", "given", "name"),
    [
        (RULES, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        (RULES, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (RULES, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        (RULES, "cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        (RULES, "OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
        ("DEFAULT", "CN=alice", "CN=alice"),
        ("RULE:^CN=(.*?)$/$1/L", "O=alice", None),
        ("", "CN=alice", None),
        ("RULE:^CN=([^,]*),O=.*$/$1/ , DEFAULT", "CN=alice,O=a", "alice"),
        # The pattern matches all of the name; what it finds is replaced, and this one finds less.
        ("RULE:CN=(.*?)/$1/", "CN=alice", "alice"),
        ("RULE:^CN=(.)(.)(.*)$/$3$12$4$0/", "CN=abc", "ca2$4CN=abc"),
        (r"RULE:^CN=(.*)$/\$1\/$1/", "CN=alice", "$1/alice"),
        (r"RULE:^CN=(a\/b)$/$1/U", "CN=a/b", "A/B"),
        ("RULE:^CN=(a)|CN=b$/<$1>/", "CN=b", "<>"),
        # A hostile name: RE2 takes no longer for it.
        ("RULE:^CN=((a+)+)$/$1/", "CN=" + "a" * 5000 + "!", None),
    ],
)
def test_a_name_is_mapped(rules: str, given: str, name: str | None) -> None:
    assert PrincipalRules(rules).name(given) == name


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ("default", "neither DEFAULT nor RULE"),
        ("DEFAULT/L", "neither"),
        ("RULE:CN=(.*?),OU=ServiceUsers.*/$1", "neither"),
        ("RULE:^CN=(.*)$/$1/L/", "neither"),
        ("RULE:^CN=(.*)$/$1/l", "neither"),
        ("RULE:^CN=(.*$/$1/", "RE2"),
        ("RULE:^(?=CN)(.*)$/$1/", "RE2"),
        ("RULE:^CN=.*$/$1/", "no group"),
        ("RULE:^CN=(.*)$/${1}/", "followed by the number"),
        ("RULE:^CN=(.*)$/a$/", "followed by the number"),
    ],
)
def test_a_rule_of_another_form_is_refused(rules: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        PrincipalRules(rules)


def test_a_wrong_rule_stops_the_start() -> None:
    with pytest.raises(InvalidConfigError, match=r"ssl\.principal\.mapping\.rules"):
        BrokerConfig({"listeners": "PLAINTEXT://:0", "ssl.principal.mapping.rules": "RULE:"})
