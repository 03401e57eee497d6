from __future__ import annotations

import pytest

from headrace.errors import QueryError
from headrace.queries.tokens import Token, parse_token, token_of
from tests.unit.queries.snapshot_records import make_record


def test_a_token_names_history_and_number() -> None:
    token = token_of(make_record(812))

    assert str(token) == "3f9a1c07.812"
    assert parse_token("3f9a1c07.812") == token


def test_a_history_that_is_no_uuid_has_eight_digits_too() -> None:
    token = token_of(make_record(1, history="in-process"))

    assert parse_token(str(token)) == token


@pytest.mark.parametrize(
    "text",
    ["", "812", "3f9a1c07", "3f9a1c07.", "3f9a1c0.812", "3F9A1C07.812", "3f9a1c07.-1",
     "3f9a1c07.08", "3f9a1c07.812 ", "3f9a1c07.٣", "3f9a1c07." + "9" * 20],
)  # fmt: skip
def test_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="is no token"):
        parse_token(text)


def test_tokens_of_one_history_have_an_order() -> None:
    token = Token("3f9a1c07", 10)

    assert token.is_at_least(Token("3f9a1c07", 9))
    assert token.is_at_least(token)
    assert not token.is_at_least(Token("3f9a1c07", 11))
    with pytest.raises(QueryError, match="of two histories"):
        token.is_at_least(Token("00000000", 9))
