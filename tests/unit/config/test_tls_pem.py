"""PEM texts in properties files, which are often one line, or indented."""

import ssl
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from aiokclient import Admin, Tls
from aiokclient.config.secret import Secret
from aiokclient.config.security.tls import laid_out
from aiokclient.errors import ConfigError

PASSWORD = "letmein"


def continued(pem: str) -> str:
    """Return the text as in the examples of Kafka's documentation."""
    return " \\\n".join(pem.strip().splitlines())


def continued_and_indented(pem: str) -> str:
    return " \\\n      ".join(pem.strip().splitlines())


def with_escaped_lines(pem: str) -> str:
    return pem.strip().replace("\n", "\\n\\\n    ")


def escaped_and_indented(pem: str) -> str:
    return "\\n\\\n".join(f"\\ \\ {line}" for line in pem.strip().splitlines())


def on_one_line(pem: str) -> str:
    return " ".join(pem.split("\n"))


LAYOUTS: list[Callable[[str], str]] = [
    continued,
    continued_and_indented,
    with_escaped_lines,
    escaped_and_indented,
    on_one_line,
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("password", [None, PASSWORD])
def test_pem_texts_in_properties_are_read_in_each_layout(
    tmp_path: Path, layout: Callable[[str], str], password: str | None
) -> None:
    authorities = [trustme.CA(), trustme.CA()]
    middle = authorities[0].create_child_ca()
    leaf = middle.issue_cert("alice")
    chain = "".join(part.bytes().decode() for part in leaf.cert_chain_pems)
    key = leaf.private_key_pem.bytes()
    if password is not None:
        encryption = BestAvailableEncryption(password.encode())
        made = load_pem_private_key(key, None)
        key = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    trusted = "".join(each.cert_pem.bytes().decode() for each in authorities)
    properties = {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": layout(trusted),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": layout(chain),
        "ssl.keystore.key": layout(key.decode()),
        **({} if password is None else {"ssl.key.password": password}),
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
    security = Admin.from_properties(file)._config.security
    assert isinstance(security, Tls)
    context = security.ssl_context()
    assert context is not None
    assert context.cert_store_stats()["x509"] == 2


def test_a_usual_pem_text_keeps_its_meaning_and_its_comments() -> None:
    pem = trustme.CA().cert_pem.bytes().decode()
    text = laid_out(Secret(f"# a comment: one\n{pem}"))
    assert text is not None
    assert text.reveal().strip() == f"# a comment: one\n{pem}".strip()
    headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: DES-EDE3-CBC,0102\n\n"
    locked = f"-----BEGIN RSA PRIVATE KEY-----\n{headers}QUJD\n-----END RSA PRIVATE KEY-----"
    for given in (locked, textwrap.indent(locked, "   ")):
        text = laid_out(Secret(given))
        assert text is not None
        assert text.reveal().strip() == locked


@pytest.mark.parametrize(
    "given", ["", "no certificate", "-----BEGIN X-----", "-" * 10_000, "a:" * 10_000]
)
def test_a_text_that_is_not_pem_is_left_alone(given: str) -> None:
    assert laid_out(Secret(given)) == Secret(given)
    with pytest.raises((ssl.SSLError, ValueError)):
        ssl.create_default_context(cadata=given or "x")


def in_file(layout: Callable[[str], str]) -> Callable[[str], str]:
    """Return the layout of a file, in which Java reads no escapes."""
    return lambda pem: layout(pem).replace("\\n", "\n").replace("\\ ", " ")


FILES: dict[str, Callable[[str], str]] = {
    "usual": lambda pem: pem,
    "indented": lambda pem: textwrap.indent(pem, "    "),
    "indented by tabs": lambda pem: textwrap.indent(pem, "\t"),
    "with blank lines": lambda pem: pem.replace("\n", "\n\n"),
    "with Windows line ends": lambda pem: pem.replace("\n", "\r\n"),
    "indented, with a comment": lambda pem: "# Größe: 1\n" + textwrap.indent(pem, "  "),
    "the first part indented": lambda pem: "  " + pem.replace("\n", "\n  ", 1),
    **{layout.__name__: in_file(layout) for layout in LAYOUTS},
}


@pytest.mark.parametrize("layout", FILES)
@pytest.mark.parametrize("password", [None, PASSWORD])
@pytest.mark.parametrize("is_one", [False, True], ids=["two files", "one file"])
def test_pem_files_are_read_in_each_layout(
    tmp_path: Path, layout: str, password: str | None, is_one: bool
) -> None:
    authorities = [trustme.CA(), trustme.CA()]
    leaf = authorities[0].create_child_ca().issue_cert("alice")
    key = leaf.private_key_pem.bytes()
    if password is not None:
        encryption = BestAvailableEncryption(password.encode())
        made = load_pem_private_key(key, None)
        key = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    chain = "".join(part.bytes().decode() for part in leaf.cert_chain_pems)
    texts = {
        "trusted": "".join(each.cert_pem.bytes().decode() for each in authorities),
        "chain": chain + key.decode() if is_one else chain,
        "key": key.decode(),
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(FILES[layout](text).encode())
    context = Tls(
        cafile=tmp_path / "trusted",
        certfile=tmp_path / "chain",
        keyfile=None if is_one else tmp_path / "key",
        password=password,
    ).ssl_context()
    assert context.cert_store_stats()["x509"] == 2


def test_a_file_that_is_not_pem_is_refused_with_its_name(tmp_path: Path) -> None:
    for content in (b"no certificate", b"\xff" * 100, b"", b"  -----BEGIN CERTIFICATE-----\n"):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(ConfigError, match="file"):
            Tls(cafile=tmp_path / "file").ssl_context()
        with pytest.raises(ConfigError, match="file"):
            Tls(certfile=tmp_path / "file").ssl_context()
