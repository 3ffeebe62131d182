"""What is secret stands in no text that an error has, whatever a server or a library repeats."""

from __future__ import annotations

import pickle
import re
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

import pytest

from penstock.errors import ArgumentError, OptionalPackageError, PenstockError, StoreError
from penstock.stores.common.per_process import PerProcess
from penstock.stores.location import Location
from penstock.stores.remote.object_store import Place
from penstock.stores.remote.storage_client import StorageOptions

if TYPE_CHECKING:
    from obstore.store import ObjectStore

obstore = pytest.importorskip("obstore")
errors = pytest.importorskip("obstore.exceptions")

KEY = "wJalr/XUtnFEMI+K7&MDENG=b"
ANSWER = (
    "Generic S3 error: Error performing GET http://h/b/x?sig=1 in 1ms - Server returned non-2xx status code: 400 Bad"
)


def collect_texts(error: BaseException | None) -> str:
    """Everything that an error and its causes say."""
    texts = []
    while error is not None:
        texts += [
            str(error),
            repr(error),
            repr(error.__dict__),
            repr(error.args),
            repr(getattr(error, "__notes__", "")),
        ]
        texts += traceback.format_exception(error)
        texts.append(pickle.dumps(error).decode("latin-1") if isinstance(error, PenstockError) else "")
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


def fail(error: Callable[[], Exception], options: Mapping[str, object]) -> PenstockError:
    """What a place makes of an error of the library."""
    place = Place("s3://bucket/x", StorageOptions({"skip_signature": True, "region": "us-east-1", **options}))

    place._client = PerProcess(lambda: cast("ObjectStore", None))  # it is not called

    def call(_: ObjectStore) -> None:
        try:
            int(KEY)
        except ValueError:
            raise error()  # noqa: B904  # the context of an error of a library has it, too

    with pytest.raises(PenstockError) as caught:
        place._repeat("", call)
    return caught.value


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            f"<Error><Code>ExpiredToken</Code><Message>It is\n old.</Message><Token-0>{KEY}</Token-0></Error>",
            "Token: It is old.",
        ),
        (
            f"<Error><Code>Bad</Code><Message>What is {quote(KEY, safe='')}?</Message></Error>",
            r"Bad (Bad: What is ***?)",
        ),
        (f'{{"error": {{"code": 403, "message": "no"}}, "token": "{KEY}"}}', "Bad (403: no)"),
        (f"denied\n\n{KEY}", "status code: 400 Bad"),
    ],
)
@pytest.mark.parametrize("kind", ["GenericError", "UnauthenticatedError"])
def test_of_an_answer_code_and_message_are_quoted(kind: str, body: str, said: str) -> None:
    """Not its body, which may repeat what was sent; neither in causes, notes, pickles."""
    error = fail(lambda: getattr(errors, kind)(f"{ANSWER}: {body}"), {"token": KEY})

    assert said in str(error)
    assert "http://h/b/x in" in str(error)
    texts = collect_texts(error)
    assert KEY not in texts
    assert quote(KEY, safe="") not in texts


@pytest.mark.parametrize(
    "options",
    [
        {"token": KEY},
        {"default_headers": {"Authorization": f"Bearer {KEY}"}},
        {"client_kwargs": {"keys": [KEY.encode()]}},
        {"proxy_url": f"http://ann:{quote(KEY, safe='')}@proxy", "x": KEY},
        {"sas_key": f"sv=2020&sig={quote(KEY, safe='')}", "account_key": KEY},
    ],
)
@pytest.mark.parametrize(
    "form", [str, quote, lambda text: quote(text, safe=""), lambda text: text.replace("&", "&amp;")]
)
def test_each_form_of_a_secret_is_struck_out(options: Mapping[str, object], form: Callable[[str], str]) -> None:
    """As it was given and as it is written in URLs and XML, of options in options and of words in them."""
    error = fail(lambda: errors.GenericError(f"Config error: bad value {form(KEY)}!"), options)

    assert "bad value ***!" in str(error)
    assert form(KEY) not in collect_texts(error)
    assert KEY not in collect_texts(error)


def test_errors_that_are_ours_already_are_cleaned() -> None:
    """Such as that of a package that fsspec needs, whose text is that of another library."""

    def make() -> Exception:
        error = OptionalPackageError(f"a package is needed: {KEY}")
        error.__cause__ = ImportError(KEY)
        return error

    error = fail(make, {"password": KEY})

    assert isinstance(error, OptionalPackageError)
    assert KEY not in collect_texts(error)


def test_secrets_of_the_environment_are_struck_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of variables, which no option states; the identity of a key is none."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", KEY)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA12345678")

    assert StorageOptions().strike(f"{KEY} AKIA12345678") == "*** AKIA12345678"


def test_what_is_not_secret_stays() -> None:
    """Endpoint and region say what is wrong; a short password is no part of other words."""
    options = StorageOptions(
        {"endpoint": "http://127.0.0.1:9000", "region": "eu-west-1", "password": "in", "ssl": True}
    )

    assert options.strike("http://127.0.0.1:9000 of eu-west-1: in inner True") == (
        "http://127.0.0.1:9000 of eu-west-1: *** inner True"
    )


def test_an_error_of_another_kind_is_still_a_cause() -> None:
    """Its class may need more than a text."""
    error = StorageOptions({"token": KEY}).clean(UnicodeDecodeError("utf-8", KEY.encode(), 0, 1, KEY))

    assert isinstance(error, OSError)
    assert KEY not in str(error)


def test_signed_urls_are_shown_without_their_query() -> None:
    """What signs a request; and without user and password."""
    said = StorageOptions().strike("GET https://ann:pw@h/x.tar?X-Amz-Signature=abc (https://h/y?sig=1) failed")

    assert said == "GET https://h/x.tar (https://h/y) failed"


@pytest.mark.parametrize("password", ["x/sesame", "12/sesame", "x?sesame", "x#sesame"])
def test_a_password_that_is_not_escaped_is_refused_unseen(password: str) -> None:
    """Where it ends the part of the URL in which passwords stand, its rest would be a path."""
    with pytest.raises(ArgumentError, match=re.escape("must be escaped by urllib.parse.quote_plus")) as caught:
        Location.from_url(f"mongodb://ann:{password}@db:27017/pets/cats")

    assert "sesame" not in collect_texts(caught.value)
    assert Location.from_url("mongodb://one:1,two:2/pets/c@ts").host == "one:1,two:2"


def test_a_call_of_several_ranges_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not repeated by the place."""
    place = Place("s3://bucket/x", StorageOptions({"skip_signature": True, "region": "x", "token": KEY}))

    def refuse(*_: object, **__: object) -> None:
        raise errors.PermissionDeniedError(f"{ANSWER}: {KEY}")

    monkeypatch.setattr(obstore, "get_ranges", refuse)
    with pytest.raises(StoreError, match="not allowed") as caught:
        place.get_ranges("", [(0, 1)])

    assert KEY not in collect_texts(caught.value)
