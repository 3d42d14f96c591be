"""What strangers send is escaped wherever a terminal or a log gets it."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import odradek
from odradek.broker.running import BrokerThread
from odradek.cli.app import main
from odradek.cli.serve import _JsonLines, _Lines
from odradek.printable import logger, printable
from odradek.testing.wire import WireClient
from peers.group_requests import LEAVE, find_coordinator, stable_member

HOSTILE = "a\n2026-01-01T00:00:00.000Z ERROR  forged\x1b[2J\x9b\u202e\r\x7f"
UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
SOURCE = Path(odradek.__file__).parent


def test_all_that_a_terminal_would_not_print_is_escaped() -> None:
    assert printable("é 漢 a-b") == "é 漢 a-b"
    assert printable(HOSTILE) == r"a\n2026-01-01T00:00:00.000Z ERROR  forged\x1b[2J\x9b\u202e\r\x7f"
    assert printable("a\tb\n", kept="\t") == r"a" + "\t" + r"b\n"


def test_a_line_of_the_log_stays_one_line(caplog: pytest.LogCaptureFixture) -> None:
    log = logger("odradek.broker.test")
    assert log is logger("odradek.broker.test")
    assert len(log.filters) == 1
    log.warning("group %s: %r, %d, %s", HOSTILE, 7, 7, ValueError(HOSTILE))
    log.warning(HOSTILE)
    escaped = printable(HOSTILE)
    assert [record.getMessage() for record in caplog.records] == [f"group {escaped}: 7, 7, {escaped}", escaped]


@pytest.mark.parametrize("formatter", [_Lines(), _JsonLines()])
def test_a_traceback_forges_no_line(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord("odradek", logging.ERROR, "f", 1, "failed", (), sys.exc_info())
    first, *others = formatter.format(record).splitlines()
    assert "failed" in first
    assert all(line.startswith(" ") for line in others)
    assert not UNPRINTABLE.search("".join([first, *others]))


def test_all_loggers_are_those_that_escape() -> None:
    others = [path for path in SOURCE.rglob("*.py") if "getLogger(__name__)" in path.read_text()]
    assert others == []


def test_ids_and_reasons_of_clients(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "odradek")
    config: dict[str, str | int | float | bool] = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
    }
    with BrokerThread(tmp_path / "data", config, sync="off", background=False) as running:
        endpoint = running.endpoint()
        with WireClient(endpoint.host, endpoint.port, client_id=HOSTILE) as client:
            find_coordinator(client)
            stable_member(client, HOSTILE)
            leaving = stable_member(client, "other")
            members = [{"member_id": leaving.member_id, "group_instance_id": None, "reason": HOSTILE}]
            assert int(client.call(LEAVE, 5, {"group_id": "other", "members": members}).error_code) == 0
            source = f"kafka://{endpoint.host}:{endpoint.port}"
            for words in (["groups", source], ["groups", "describe", source]):
                shown = CliRunner().invoke(main, words)
                assert shown.exit_code == 0, shown.output
                assert printable(HOSTILE) in shown.stdout
                assert not UNPRINTABLE.search(shown.stdout)
    told = [record.getMessage() for record in caplog.records if record.name.startswith("odradek.")]
    assert any("client reason" in line and printable(HOSTILE) in line for line in told)
    assert not any("\n" in line or UNPRINTABLE.search(line) for line in told)
