"""The connections to a cluster, where there is none."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl
from pathlib import Path

import pytest
from kafka import errors

from odradek.kafka.cluster import Cluster, _is_final


def _sockets() -> set[str]:
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(link.readlink()))
    return {link for link in links if link.startswith("socket:")}


@pytest.mark.slow
def test_a_socket_that_does_not_connect_is_closed_and_not_left_to_the_collector() -> None:
    with socket.socket() as taken:
        cluster = _cluster_of(taken)
        gc.collect()
        gc.disable()
        try:
            before = _sockets()
            with pytest.raises(errors.KafkaError):
                cluster.connected(300)
            cluster.close()
            assert _sockets() <= before
        finally:
            gc.enable()


def _lost(cause: Exception) -> errors.KafkaConnectionError:
    lost = errors.KafkaConnectionError(f"Handshake failed: {cause}")
    lost.__context__ = cause
    return lost


@pytest.mark.parametrize(
    ("failure", "is_final"),
    [
        (errors.SaslAuthenticationFailedError("wrong password"), True),
        (errors.UnsupportedSaslMechanismError(), True),
        (_lost(ssl.SSLCertVerificationError("self-signed certificate")), True),
        (FileNotFoundError("ssl.cafile"), True),
        (TypeError("no name of a user"), True),
        (_lost(ssl.SSLError("wrong version number")), True),
        (errors.KafkaConnectionError(ssl.SSLError("certificate required")), True),
        (_lost(ssl.SSLEOFError("the broker ended")), False),
        (errors.KafkaConnectionError(ssl.SSLZeroReturnError("the broker ended")), False),
        (errors.KafkaConnectionError("socket disconnected"), False),
        (ConnectionRefusedError(), False),
        (errors.RequestTimedOutError(), False),
    ],
    ids=str,
)
def test_what_no_other_attempt_would_change(failure: Exception, is_final: bool) -> None:
    assert _is_final(failure) is is_final


@pytest.mark.slow
def test_the_error_ends_with_what_the_last_attempt_failed_with() -> None:
    with socket.socket() as taken, contextlib.closing(_cluster_of(taken)) as cluster:
        told = ""
        while "ECONNREFUSED" not in told:  # at the first time, unless the machine is very slow
            with pytest.raises(errors.KafkaTimeoutError, match="Unable to bootstrap from") as caught:
                cluster.connected(300)
            told = str(caught.value)


def _cluster_of(taken: socket.socket) -> Cluster:
    """A cluster at a port where nobody listens."""
    taken.bind(("127.0.0.1", 0))
    return Cluster([f"127.0.0.1:{taken.getsockname()[1]}"], "test", {"reconnect_backoff_ms": 10}, max_response_bytes=9)
