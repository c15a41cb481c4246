"""Who calls: credentials in headers to the owner that they prove.

    headers -> credentials (which header) -> tokens | signed | stripped (is it true) -> Principal

`open_authenticator(settings)` composes one for the configured mode. Every
binding asks it the same question: over HTTP `AuthMiddleware`, in a gRPC
interceptor `await authenticator.authenticate(context.invocation_metadata())`.
Only the middleware knows the web framework.
"""

from a2a_gcs.host.auth.authenticator import Authenticator, open_authenticator
from a2a_gcs.host.auth.errors import AuthUnavailable, Unauthenticated
from a2a_gcs.host.auth.principal import Principal

__all__ = ["AuthUnavailable", "Authenticator", "Principal", "Unauthenticated", "open_authenticator"]
