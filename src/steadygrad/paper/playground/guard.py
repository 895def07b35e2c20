"""What keeps other sites out: a page on loopback can be reached by any site that is open in the same browser.

Every request is checked before the application sees it. Its Host must be this server (else a name that was pointed
at 127.0.0.1 could read the pages), its Origin, where the browser sends one, must be this server too, and a request
that the browser marks as coming from another site is refused unless it only opens the start page. Answers carry a
policy under which the browser loads nothing from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# Gradio's own page needs inline scripts and styles; what matters is that nothing comes from, or goes to, another host.
POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
ELSEWHERE = re.compile(rb"""<script[^>]*\ssrc=["']https?://[^>]*>\s*</script>|<link[^>]*\shref=["']https?://[^>]*>""")
"""Tags of Gradio's page that load from a network: a resizer for pages inside others, and fonts. Nothing here needs them."""


class OwnPagesOnly:
    """An ASGI application that lets through what this server's own pages send, and refuses the rest with 403."""

    def __init__(self, application: Application, port: int) -> None:
        self.application = application
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
        elif reason := self.refused(scope):
            await refuse(scope, reason, send)
        elif scope["type"] == "http":
            await self.application(scope, receive, Closed(send))
        else:
            await self.application(scope, receive, send)

    def refused(self, scope: Scope) -> str:
        """Why this request is refused; empty if it is not."""
        header = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if header.get("host", "") not in self.hosts:
            return "this server answers to 127.0.0.1 and localhost alone"
        origin = header.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            return "requests from other sites are refused"
        opens = scope["type"] == "http" and scope["path"] == "/" and header.get("sec-fetch-mode") == "navigate"
        if header.get("sec-fetch-site") in ("cross-site", "same-site") and not opens:
            return "requests from other sites are refused"
        return ""


class Closed:
    """Sends an answer on with the policy, and an HTML page without the tags that load from elsewhere."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.start: Message | None = None
        self.body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"content-security-policy", POLICY.encode())]}
            if self.is_page(message):
                self.start = message  # its length is known at the end only
                return
        elif self.start is not None and message["type"] == "http.response.body":
            self.body += message.get("body", b"")
            if not message.get("more_body"):
                await self.send_page(self.start)
            return
        await self.send(message)

    def is_page(self, message: Message) -> bool:
        headers = {name.lower(): value for name, value in message["headers"]}
        return headers.get(b"content-type", b"").startswith(b"text/html") and b"content-encoding" not in headers

    async def send_page(self, start: Message) -> None:
        body = ELSEWHERE.sub(b"", self.body)
        kept = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
        await self.send({**start, "headers": [*kept, (b"content-length", str(len(body)).encode())]})
        await self.send({"type": "http.response.body", "body": body})


async def refuse(scope: Scope, reason: str, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": reason})
        return
    await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": f"refused: {reason}\n".encode()})
