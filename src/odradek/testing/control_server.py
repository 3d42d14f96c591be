"""The control of a broker over HTTP, for tests in other languages. Bodies and answers are JSON.

    POST   /fault      {"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2, "when": ...}  -> {"id": 1, ...}
    GET    /fault      all faults, and how often each fired           GET /fault/1    one of them
    DELETE /fault      all faults are removed                         DELETE /fault/1    one of them
    POST   /advance    {"seconds": 45}                                -> {"now_ms": ...}
    GET    /requests   ?api=Produce                                   the requests that came in
    POST   /topics     {"name": "events", "partitions": 3, "config": {}}    DELETE /topics/events
    POST   /users      {"alice": "secret", "bob": null}               users of SCRAM
    POST   /quotas     {"clients/app": {"producer_byte_rate": 1000}}
    POST   /acls       {"allow": [{"principal": "alice", "operation": "READ", "topic": "events"}], "deny": []}
    GET    /healthz    {"status": "ok"}

Any page that a browser shows may send requests to this machine. A request therefore carries the control's token as
`Authorization: Bearer TOKEN`, and its body is declared as JSON. Foreign values of `Host` and `Origin` are refused.

`when` is a pattern: {"client_id": "a", "fields": {"topics": [{"name": "events"}]}}. An object matches one that has all
of its members, a list one in which each of its items matches an item. What is wrong is in {"error": ...}.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

from odradek.closing import Closing
from odradek.cross_site import RefusedRequestError, check_site
from odradek.errors import OdradekError, OptionError
from odradek.messages.uuids import format_uuid
from odradek.printable import logger
from odradek.testing.broker_control import BrokerControl
from odradek.testing.request_tap import ReceivedRequest, RequestFault
from odradek.testing.security import allow, deny

_logger = logger(__name__)

_MAX_BODY_BYTES = 1 << 20
_MOST_CLIENTS = 64
_CLIENT_S = 60.0
_FAULT_OPTIONS = ("error", "delay_ms", "disconnect", "drop", "times")


class _NotFoundError(Exception):
    """There is no such thing."""


def matches(pattern: Any, value: Any) -> bool:
    """Return whether a value has what a pattern has; see the module."""
    if isinstance(pattern, Mapping):
        return isinstance(value, Mapping) and all(
            name in value and matches(one, value[name]) for name, one in pattern.items()
        )
    if isinstance(pattern, list):
        return isinstance(value, list) and all(any(matches(one, other) for other in value) for one in pattern)
    return bool(pattern == value)


def _in_json(value: Any) -> Any:
    if isinstance(value, UUID):
        return format_uuid(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} is not for JSON")


def _told(request: ReceivedRequest) -> dict[str, Any]:
    try:
        fields: dict[str, Any] | None = json.loads(json.dumps(request.fields, default=_in_json))
    except (OdradekError, RuntimeError):
        # It cannot be read, or is of a version that Kafka does not have.
        fields = None
    return {
        "api": request.api,
        "version": request.version,
        "client_id": request.client_id,
        "peer": request.peer,
        "time_ms": request.time_ms,
        "fields": fields,
    }


@dataclass(slots=True)
class _NamedFault:
    asked: Mapping[str, Any]
    fault: RequestFault

    def told(self, number: int) -> dict[str, Any]:
        """Return what is told of it."""
        return {"id": number, **self.asked, "fired": self.fault.fired}


class _HttpServer(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._free = threading.BoundedSemaphore(_MOST_CLIENTS)
        super().__init__(address, handler)

    def verify_request(self, request: object, client_address: object) -> bool:
        """Return whether there is room for one more client; each has a thread."""
        return self._free.acquire(blocking=False)

    def process_request_thread(self, request: object, client_address: object) -> None:
        """Serve a client."""
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log what went wrong, unless the client has disconnected."""
        if not isinstance(sys.exception(), ConnectionError):
            _logger.exception("a request to the control failed")


class ControlServer(Closing):
    """Serves the control of a broker in threads, until it is closed; a context manager.

    Args:
        control: The broker.
        host: Where to listen.
        port: The port; 0 for any that is free.
        token: What requests must carry; by default a random one.

    Attributes:
        address: The host and the port.
        token: What requests must carry.

    Raises:
        OSError: The address cannot be listened on.
    """

    def __init__(
        self, control: BrokerControl, host: str = "127.0.0.1", port: int = 0, token: str | None = None
    ) -> None:
        self.token = token or secrets.token_urlsafe()
        self._control = control
        self._host = host.lower()
        self._faults: dict[int, _NamedFault] = {}
        self._lock = threading.Lock()
        self._count = 0
        self._server = _HttpServer((host, port), partial(_Handler, self))
        self.address: tuple[str, int] = (str(self._server.server_address[0]), int(self._server.server_address[1]))
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="odradek-control", daemon=True).start()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()

    def check(self, method: str, path: str, headers: Message) -> None:
        """Check that a request is from somebody who may control the broker.

        Raises:
            RefusedRequestError: A web page may have sent it.
        """
        check_site(headers.items(), [self._host])
        if path == "/healthz":
            return
        given = headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            raise RefusedRequestError(
                HTTPStatus.UNAUTHORIZED, "send the control's token as Authorization: Bearer TOKEN"
            )
        if method == "POST" and headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the Content-Type must be application/json")

    def answer(self, method: str, path: str, query: Mapping[str, list[str]], body: Mapping[str, Any]) -> Any:
        """Do what a request asks for.

        Raises:
            OdradekError: It cannot be done.
            KeyError: The body lacks a member.
        """
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "GET", ["healthz"]:
                return {"status": "ok"}
            case "POST", ["fault"]:
                return self._add(body)
            case "GET", ["fault", *named]:
                found = [one.told(number) for number, one in self._named(named).items()]
                return found[0] if named else found
            case "DELETE", ["fault", *named]:
                for number, one in self._named(named).items():
                    one.fault.remove()
                    del self._faults[number]
                return {}
            case "POST", ["advance"]:
                self._control.clock.advance(float(body["seconds"]))
                return {"now_ms": self._control.clock.now_ms()}
            case "GET", ["requests"]:
                return [_told(request) for request in self._control.requests(query.get("api", [None])[0])]
            case "POST", ["topics"]:
                topic = self._control.create_topic(body["name"], body.get("partitions", 1), body.get("config"))
                topic_id = None if topic.topic_id is None else format_uuid(topic.topic_id)
                return {"name": topic.name, "topic_id": topic_id}
            case "DELETE", ["topics", name]:
                self._control.delete_topic(name)
                return {}
            case "POST", ["users"]:
                self._control.alter_users(body)
                return {}
            case "POST", ["quotas"]:
                self._control.alter_quotas(body)
                return {}
            case "POST", ["acls"]:
                made = [allow(**one) for one in body.get("allow", [])]
                self._control.create_acls(made + [deny(**one) for one in body.get("deny", [])])
                return {}
        raise _NotFoundError(f"there is no {method} {path}")

    def _add(self, body: Mapping[str, Any]) -> Any:
        unknown = sorted(body.keys() - {"api", "when", *_FAULT_OPTIONS})
        if unknown:
            raise OptionError(f"a fault has no {', '.join(unknown)}")
        pattern = body.get("when")

        def when(request: ReceivedRequest) -> bool:
            return matches(pattern, _told(request))

        fault = self._control.fault(
            body["api"],
            **{name: body[name] for name in _FAULT_OPTIONS if name in body},
            when=None if pattern is None else when,
        )
        with self._lock:
            self._count += 1
            self._faults[self._count] = _NamedFault(body, fault)
            return self._faults[self._count].told(self._count)

    def _named(self, named: list[str]) -> dict[int, _NamedFault]:
        with self._lock:
            if not named:
                return dict(self._faults)
            number = int(named[0]) if named[0].isdecimal() else 0
            if number not in self._faults:
                raise _NotFoundError(f"there is no fault {named[0]}")
            return {number: self._faults[number]}


def _body(text: bytes) -> Mapping[str, Any]:
    body = json.loads(text or b"{}")
    if not isinstance(body, dict):
        raise ValueError("the body is not an object")
    return body


class _Handler(BaseHTTPRequestHandler):
    """Reads requests and writes answers of HTTP."""

    protocol_version = "HTTP/1.1"
    timeout = _CLIENT_S

    def __init__(self, control: ControlServer, *arguments: Any) -> None:
        self._control = control
        super().__init__(*arguments)

    def _serve(self) -> None:
        try:
            url, text = urlsplit(self.path), self._text()
            self._control.check(self.command, url.path, self.headers)
            answer = self._control.answer(self.command, url.path, parse_qs(url.query), _body(text))
            status = HTTPStatus.OK
        except RefusedRequestError as error:
            answer, status = {"error": str(error)}, error.status
        except _NotFoundError as error:
            answer, status = {"error": str(error)}, HTTPStatus.NOT_FOUND
        except KeyError as error:
            answer, status = {"error": f"{error.args[0]} is missing"}, HTTPStatus.BAD_REQUEST
        except (OdradekError, TypeError, ValueError, RecursionError) as error:
            answer, status = {"error": str(error)}, HTTPStatus.BAD_REQUEST
        data = json.dumps(answer, default=_in_json).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - their names in the standard library

    def _text(self) -> bytes:
        size = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not size.isdecimal() or int(size[:20]) > _MAX_BODY_BYTES:
            # The body stays unread. What follows must not be taken for the next request.
            self.close_connection = True
            raise ValueError(f"a body needs a Content-Length of at most {_MAX_BODY_BYTES}")
        return self.rfile.read(int(size))

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name in the standard library
        """Print nothing."""
