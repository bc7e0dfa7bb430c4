"""Keeps the prefixes of tenants apart: block hashes get the tenant's own tag at the boundary."""

from hashlib import blake2b
from os import urandom

Chain = tuple[int, ...]

HASH_BITS = 64
"""Bits of a block hash as clients send it."""

_HASH = (1 << HASH_BITS) - 1


_STORED = b"btb log 1"
"""Key of what is mixed into hashes in the log. No secret: it keeps files of all starts alike."""


class Tenants:
    """Puts the tag of a tenant in front of a block hash, and takes it off again.

    Inside, a block is `tag << 64 | hash`. The tag is 64 bits of BLAKE2b of the tenant's name, keyed
    with a secret that is drawn at every start and never written down: blocks of two tenants never
    meet, whatever hashes they send, and nobody can find names that share a tag. The nameless tenant
    has the tag 0, so where nobody names a tenant blocks stay as they are. Hashes can be given back
    to the tenant they came from in its own terms, and to no other.

    In the log a hash has 64 bits, as readers of traces expect, and is mixed with the tenant's name
    so that there, too, one hash of two tenants is two.

    Examples
    --------
    >>> tenants = Tenants(secret=b"for a test")
    >>> tenants.tagged((7, 8), "")
    (7, 8)
    >>> own, other = tenants.tagged((7, 8), "acme"), tenants.tagged((7, 8), "initech")
    >>> set(own) & set(other)
    set()
    >>> tenants.untagged(own[0], "acme"), tenants.untagged(own[0], "initech")
    (7, None)
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = urandom(32) if secret is None else secret

    def tag(self, tenant: str) -> int:
        """Return the tag of `tenant`, moved to its place above a hash."""
        # Never 0 for a name, as 0 is the nameless tenant's.
        return (_named(tenant, self._secret) or 1) << HASH_BITS if tenant else 0

    def tagged(self, chain: Chain, tenant: str) -> Chain:
        """Return `chain` as it is named inside."""
        tag = self.tag(tenant)
        return tuple([tag | block for block in chain]) if tag else chain

    def untagged(self, block: int, tenant: str) -> int | None:
        """Return the hash of `block` as `tenant` knows it, or None if it is another's."""
        return block & _HASH if block & ~_HASH == self.tag(tenant) else None


def stored(chain: Chain, tenant: str) -> Chain:
    """Return `chain`, as a client sent it, as it is written to the log, and the other way round.

    >>> stored(stored((7, 8), "acme"), "acme")
    (7, 8)
    """
    if not tenant:
        return chain
    mask = _named(tenant, _STORED)
    return tuple([block ^ mask for block in chain])


def _named(tenant: str, key: bytes) -> int:
    name = tenant.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8, key=key).digest())
