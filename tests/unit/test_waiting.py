"""Tests that wait for a condition."""

from __future__ import annotations

import pytest

from tests.waiting import await_that


def test_a_condition_is_asked_for_until_it_holds() -> None:
    answers = [0, "", [7]]

    await_that(lambda: answers.pop(0), "a list")

    assert answers == []


def test_a_failure_names_the_awaited_and_the_actual_state() -> None:
    with pytest.raises(AssertionError) as caught:
        await_that(lambda: False, "three records", found=lambda: [1, 2], seconds=0)

    assert str(caught.value) == "waited 0 s in vain for three records; found [1, 2]"


def test_a_failure_without_an_actual_state_names_the_awaited_one() -> None:
    with pytest.raises(AssertionError) as caught:
        await_that(lambda: False, "the end", seconds=0.001)

    assert str(caught.value) == "waited 0.001 s in vain for the end"


def test_a_condition_that_holds_needs_no_description() -> None:
    await_that(lambda: True, "nothing", found=lambda: pytest.fail("asked"))
