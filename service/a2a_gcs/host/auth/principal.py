"""The caller, once it has proved who it is."""

from __future__ import annotations

from dataclasses import dataclass

from a2a.auth.user import User

from a2a_gcs.errors import InvalidId
from a2a_gcs.host.auth.errors import Unauthenticated
from a2a_gcs.layout import encode_segment


@dataclass(frozen=True)
class Principal(User):
    """An authenticated caller: what the SDK calls a user, and Starlette too.

    Attributes:
        owner: Names the caller for ever; its tasks are kept under it (`layout.root_of`). It is the token's name with
            `auth` tokens, and the claim that `auth_owner_claim` names with every other mode. It can always
            become one segment of a key.
    """

    owner: str

    @property
    def is_authenticated(self) -> bool:
        """True: there is no other kind."""
        return True

    @property
    def user_name(self) -> str:
        """The owner, as the SDK's call context asks for it."""
        return self.owner

    @property
    def display_name(self) -> str:
        """The owner, as Starlette asks for it."""
        return self.owner

    @property
    def identity(self) -> str:
        """The owner, as Starlette asks for it."""
        return self.owner


def principal_of(owner: object, claim: str) -> Principal:
    """The principal of a claim's value. Raises Unauthenticated for a value that cannot name an owner."""
    if not isinstance(owner, str):
        raise Unauthenticated(f"the token has no usable {claim} claim")
    try:
        encode_segment(owner)
    except InvalidId as e:
        raise Unauthenticated(f"the token has no usable {claim} claim", detail=str(e)) from e
    return Principal(owner)
