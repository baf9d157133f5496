"""Who may talk to the server, and what every answer says to the browser. Pure ASGI, around everything else."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slir.web.problems import Problem
from slir.web.settings import Settings

SESSION, KEY = "slir-session", "slir-key"
JSON_BYTES = 2**20
BODY_SECONDS = 30.0
"""Longest time in which nothing of a body comes."""

_UPLOADS = ("/api/files", "/api/masks", "/api/psf")
_SAFE = ("GET", "HEAD", "OPTIONS")
_SESSION_ID = re.compile(r"[0-9a-f]{32}")
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """Lets a request pass that names this server, comes from its own page or from no page, and knows the token.

    It also numbers clients (a random cookie, in `scope["state"]["session"]`) and stops bodies that are too long.
    """

    def __init__(self, app: ASGIApp, settings: Settings):
        self.app, self.settings = app, settings
        self.key = _key(settings.token) if settings.token else None
        self.names = {"localhost", *(name.lower() for name in settings.names)}
        if not settings.is_local:
            self.names |= {settings.host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        cookies = _cookies(headers.get("cookie", ""))
        session = cookies.get(SESSION, "")
        new = not _SESSION_ID.fullmatch(session)
        session = secrets.token_hex(16) if new else session
        scope.setdefault("state", {})["session"] = session

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    out.setdefault(name, value)
                if scope["path"].startswith("/api/"):
                    out.setdefault("Cache-Control", "no-store")
                if new:
                    out.append("Set-Cookie", _cookie(SESSION, session))
            await send(message)

        try:
            response = self._refusal(scope, headers, cookies)
            limited = self._limited(scope, headers, receive)
        except Problem as problem:
            response = problem.response()
        if response is not None:
            new = False  # a client that is turned away need not be known again
            await response(scope, receive, answer)
            return
        await self.app(scope, limited, answer)

    def _refusal(self, scope: Scope, headers: Headers, cookies: dict[str, str]) -> Response | None:
        self._check_host(headers.get("host", ""))
        if scope["method"] not in _SAFE:
            _check_origin(headers)
        if self.key is None:
            return None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in pairs if name == "token"), None)
        if given is not None:
            if not hmac.compare_digest(_key(given), self.key):
                raise _stranger()
            if scope["method"] not in _SAFE:
                return None
            rest = urlencode([(name, value) for name, value in pairs if name != "token"])
            # One slash at the start: "//host" would name another server.
            place = "/" + scope["path"].lstrip("/\\") + (f"?{rest}" if rest else "")
            answer = RedirectResponse(place, 303)
            answer.headers.append("Set-Cookie", _cookie(KEY, self.key))
            return answer
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(_key(bearer.strip()), self.key):
            return None
        if hmac.compare_digest(cookies.get(KEY, "").encode(), self.key.encode()):
            return None
        if "text/html" in headers.get("accept", ""):
            text = "This server needs its token. Open the address that slir serve printed, which holds it."
            return PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})
        raise _stranger()

    def _check_host(self, host: str) -> None:
        """A page of another server whose name was made to mean this machine (DNS rebinding) says so here."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            name = ""
        if name in self.names or _is_address(name, loopback=self.settings.is_local):
            return
        remedy = "Open it under the address that slir serve printed, or start it with --name NAME."
        raise Problem(
            421, "The host name is unknown", "The server does not accept requests for this host name.", remedy=remedy
        )

    def _limited(self, scope: Scope, headers: Headers, receive: Receive) -> Receive:
        """Refuse a body that is longer than the path allows, at once where its length is told, else when it shows; and
        one that stops coming."""
        most = self.settings.bytes if scope["path"] in _UPLOADS else JSON_BYTES
        told, count, whole = headers.get("content-length", ""), 0, False
        if told.isdecimal() and int(told) > most:
            raise too_long(most)

        async def limited() -> Message:
            nonlocal count, whole
            try:
                message = await asyncio.wait_for(receive(), None if whole else BODY_SECONDS)
            except TimeoutError:
                raise Problem(408, "The body did not arrive", remedy="Send it again.") from None
            whole = not message.get("more_body", False)
            count += len(message.get("body", b""))
            if count > most:
                raise too_long(most)
            return message

        return limited


def too_long(most: int) -> Problem:
    size = f"{most / 2**20:.3g} MB"
    remedy = "Crop it or make it smaller, or use the command line."
    return Problem(413, "The file is too large", f"The limit is {size}.", remedy=remedy)


def _check_origin(headers: Headers) -> None:
    """Browsers say which page a request comes from; those that change something must come from ours."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
    foreign = origin is not None and origin.partition("://")[2] != headers.get("host")
    if foreign or site not in ("same-origin", "none"):
        raise Problem(403, "This request comes from another page", "Only this server's own page may ask for this.")


def _is_address(name: str, *, loopback: bool) -> bool:
    """Whether a name is a number, which nobody can make to mean another machine."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or not loopback


def _stranger() -> Problem:
    remedy = "Send it as 'Authorization: Bearer TOKEN', or open the address that slir serve printed."
    return Problem(401, "The token is missing or wrong", remedy=remedy, headers={"WWW-Authenticate": "Bearer"})


def _key(token: str) -> str:
    """What the cookie holds: it proves the token, and does not tell it."""
    return hashlib.sha256(b"slir serve " + token.encode()).hexdigest()


def _cookie(name: str, value: str) -> str:
    return f"{name}={value}; Path=/; HttpOnly; SameSite=Strict"


def _cookies(header: str) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header).items()}
    except CookieError:
        return {}
