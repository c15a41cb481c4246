"""An issuer of tokens on this machine: keys of its own, a discovery document and a JWKS over HTTP."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import time

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1()}


class SigningKey:
    """A private key with its name, and its public half as a JWK."""

    def __init__(self, kid, algorithm="RS256", bits=2048):
        self.kid, self.algorithm = kid, algorithm
        self.private = ec.generate_private_key(CURVES[algorithm]) if algorithm in CURVES else _rsa(kid, bits)

    def sign(self, claims, **header):
        named = {"kid": self.kid, **header}
        return jwt.encode(claims, self.private, self.algorithm, {k: v for k, v in named.items() if v is not None})

    def jwk(self, **more):
        family = ECAlgorithm if self.algorithm in CURVES else RSAAlgorithm
        public = family.to_jwk(self.private.public_key(), as_dict=True)
        return {k: v for k, v in {**public, "kid": self.kid, "use": "sig", **more}.items() if v is not None}


@functools.cache
def _rsa(kid, bits):
    del kid  # one key a name, as making one takes a while
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def claims(**changes):
    """Good claims with changes; None leaves one out. Times are seconds from now."""
    now = int(time.time())
    good = {"iss": "https://issuer.example", "aud": "agent.example", "sub": "alice", "exp": 300, "iat": -5}
    told = {k: v for k, v in {**good, **changes}.items() if v is not None}
    times = {"exp", "iat", "nbf"}
    return {k: now + v if k in times and isinstance(v, int) else v for k, v in told.items()}


def encoded(part):
    """A part of a token: bytes, or what becomes JSON."""
    body = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


class Issuer:
    """Serves `keys` until told otherwise.

    Attributes:
        keys: What the JWKS holds, as JWKs.
        status: Of the answer to a request for the JWKS; a redirect leads to the same place.
        body: What is answered instead of the JWKS.
        silent: While it is set, a request waits for `release`.
        served: How often the JWKS was asked for.
    """

    def __init__(self, *keys):
        self.keys = [key.jwk() for key in keys]
        self.status, self.body, self.served, self.silent = 200, None, 0, False
        self.release = asyncio.Event()
        self.discovery = {}
        self.url = ""

    @property
    def jwks_url(self):
        return f"{self.url}/keys"

    async def _jwks(self, _request):
        self.served += 1
        if self.silent:
            await self.release.wait()
        text = json.dumps({"keys": self.keys}) if self.body is None else self.body
        return web.Response(status=self.status, text=text, headers={"Location": self.jwks_url})

    async def _document(self, _request):
        return web.json_response({"issuer": self.url, "jwks_uri": self.jwks_url, **self.discovery})

    @contextlib.asynccontextmanager
    async def serving(self):
        app = web.Application()
        app.router.add_get("/keys", self._jwks)
        app.router.add_get("/.well-known/openid-configuration", self._document)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()
