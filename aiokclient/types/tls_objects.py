"""Whether something is an object of the module ssl, which is not imported for that.

Without the module, there is no such object. A client without TLS does not need the module, whose
import takes half as long as the start of the interpreter.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    import ssl


def is_tls_error(error: object) -> TypeGuard[ssl.SSLError]:
    """Return whether something is an `ssl.SSLError`."""
    module = sys.modules.get("ssl")
    return module is not None and isinstance(error, module.SSLError)


def is_end_of_tls(error: object) -> bool:
    """Return whether something is an `ssl.SSLEOFError`, for a peer that ends TLS too early."""
    module = sys.modules.get("ssl")
    return module is not None and isinstance(error, module.SSLEOFError)


def is_certificate_error(error: object) -> TypeGuard[ssl.SSLCertVerificationError]:
    """Return whether something is an `ssl.SSLCertVerificationError`."""
    module = sys.modules.get("ssl")
    return module is not None and isinstance(error, module.SSLCertVerificationError)
