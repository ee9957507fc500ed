"""The forms of keys and values."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from aiokclient.cli.records.formats import (
    ContentError,
    NamedForm,
    PackedForm,
    Unpack,
    unescape,
)


def test_escapes_are_those_of_kcat() -> None:
    assert unescape(r"a\tb\n\r\x41\x4\065\65\\\q%é") == b"a\tb\n\rA\x045A\\q%" + "é".encode()
    assert unescape("\\") == b"\\"


@pytest.mark.parametrize(
    ("name", "content", "line", "item"),
    [
        ("text", b"\xff", b"\xff", {"base64": "/w=="}),
        ("json", b' {"a": "\xc3\xa9"}', '{"a":"é"}'.encode(), {"a": "é"}),
        ("hex", b"\x00\xff", b"00ff", "00ff"),
        ("base64", b"\xff", b"/w==", "/w=="),
        ("int", b"\xff\xff\xff\xfe", b"-2", -2),
        ("auto", b"a", b"a", "a"),
        ("auto", b"\xff", b"/w==", {"base64": "/w=="}),
    ],
)
def test_contents_have_their_form(name: str, content: bytes, line: bytes, item: object) -> None:
    form = NamedForm(name)
    assert (form.to_bytes(content), form.to_json(content)) == (line, item)


@pytest.mark.parametrize(
    ("form", "content"),
    [
        (NamedForm("json"), b"{"),
        (NamedForm("int"), b"abc"),
        (PackedForm("i"), b"abc"),
        (PackedForm("b$"), b"ab"),
    ],
)
def test_contents_of_another_form_are_refused(form: NamedForm | PackedForm, content: bytes) -> None:
    with pytest.raises(ContentError):
        form.to_bytes(content)


def test_fields_are_unpacked() -> None:
    content = b"\xff\x01\x00\x00\x02xyz"
    assert PackedForm("bB>hBcs$").to_json(content) == [-1, 1, 0, 2, "x", "yz"]
    assert PackedForm("b<H c").to_bytes(content) == b"-11 \x00"
    assert PackedForm("b").to_json(content) == -1
    assert Unpack("key=i").parts == ("key",)
    assert Unpack("q").parts == ("key", "value")


@pytest.mark.parametrize("text", ["avro", "protobuf:Order", "xml", ""])
def test_unknown_forms_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        NamedForm(text)
    if text:
        with pytest.raises(ArgumentTypeError):
            Unpack(f"value={text}z")
