"""Which requests of HTTP are refused because a foreign web page may have had a browser send them.

    Host: evil.example              a name that its owner lets point to this machine (DNS rebinding)
    Origin: http://evil.example     a script of a foreign page
    Sec-Fetch-Site: cross-site      any request that a foreign page caused, in a browser that says so

Programs send only a `Host`, which is an address or a name of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address

_HOST = re.compile(r"(?:([a-z0-9_.-]+)|\[([0-9a-f:.]+)\])(?::[0-9]{1,5})?")


class RefusedRequestError(Exception):
    """A request that is not answered.

    Attributes:
        status: The status of the answer.
    """

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        self.status = status
        super().__init__(reason)


class UnknownHostError(RefusedRequestError):
    """A request for a name that the server does not have, which may be a foreign page's."""


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine only."""
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host.lower() == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _is_own(host: str, names: Collection[str]) -> bool:
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = match[1] or match[2]
    try:
        # No page has such a name.
        return name in ("localhost", *names) or bool(ip_address(name))
    except ValueError:
        return False


def check_site(
    headers: Iterable[tuple[str, str]],
    names: Collection[str],
    *,
    only_names: bool = False,
    needs_host: bool = False,
    follows_links: bool = False,
    needs_site: bool = False,
) -> None:
    """Check that no foreign page caused a request.

    Args:
        headers: Its headers.
        names: What this machine is called, in small letters, at any port; addresses and `localhost` are its own, too.
        only_names: Whether it is called by nothing else than the names, which have their ports.
        needs_host: Whether a request without a `Host` is refused, which only old programs send.
        follows_links: Whether a reader may follow a link of a foreign page.
        needs_site: Whether the request must say that it comes from a page of the server: a browser would send a cookie.

    Raises:
        RefusedRequestError: One may have done so.
    """
    given: dict[str, list[str]] = {}
    for name, value in headers:
        given.setdefault(name.lower(), []).append(value.strip())
    hosts = [host.lower() for host in given.get("host", ())]
    if len(hosts) > 1 or (needs_host and not hosts):
        raise UnknownHostError(HTTPStatus.FORBIDDEN, "exactly one Host is needed")
    if not all(host in names if only_names else _is_own(host, names) for host in hosts):
        known = ", ".join([*(() if only_names else ("an address", "localhost")), *sorted(names)])
        raise UnknownHostError(HTTPStatus.FORBIDDEN, f"the Host must be one of: {known}")
    origins, sites = given.get("origin", []), given.get("sec-fetch-site", [])
    own = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    if any(origin.lower() not in own for origin in origins):
        raise RefusedRequestError(HTTPStatus.FORBIDDEN, "a foreign Origin")
    if needs_site and (any(site != "same-origin" for site in sites) or not (origins or sites)):
        raise RefusedRequestError(HTTPStatus.FORBIDDEN, "not a request of a page of this server")
    is_followed = (
        follows_links
        and given.get("sec-fetch-mode") == ["navigate"]
        and given.get("sec-fetch-dest") == ["document"]
        and len(sites) == 1
    )
    if not is_followed and any(site not in ("none", "same-origin") for site in sites):
        raise RefusedRequestError(HTTPStatus.FORBIDDEN, "a request of another site")
