from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.engine.stops import Stop, StopStrings, stop_by_token, stop_token_ids
from freehold.protocol import FinishReason, SamplingParams

EOS = frozenset({2})


def fed(stops: tuple[str, ...], pieces: list[str], *, include: bool = False) -> tuple[str, str]:
    """The text shown in all, and the stop string ("" for none)."""
    matcher = StopStrings(stops, include=include)
    shown = ""
    for piece in pieces:
        text, matched = matcher.feed(piece)
        shown += text
        if matched is not None:
            return shown, matched
    return shown + matcher.flush(), ""


def test_text_that_may_begin_a_stop_string_is_held_back() -> None:
    matcher = StopStrings(("###",), include=False)
    assert matcher.feed("a#") == ("a", None)
    assert matcher.feed("#") == ("", None)
    assert matcher.feed("b") == ("##b", None)


def test_a_match_across_pieces_cuts_before_or_behind_it() -> None:
    assert fed(("STOP",), ["go S", "TO", "P on"]) == ("go ", "STOP")
    assert fed(("STOP",), ["go S", "TO", "P on"], include=True) == ("go STOP", "STOP")


def test_the_string_that_is_complete_first_wins_and_of_those_the_longest() -> None:
    assert fed(("cd", "abcde"), ["xabcde"]) == ("xab", "cd")
    assert fed(("b", "ab"), ["xab"]) == ("x", "ab")


def test_without_stop_strings_nothing_is_held() -> None:
    assert StopStrings((), include=False).feed("text") == ("text", None)


@settings(deadline=None)
@given(
    stops=st.lists(st.text("ab#", min_size=1, max_size=4), max_size=3).map(tuple),
    pieces=st.lists(st.text("ab#", max_size=4), max_size=12),
    include=st.booleans(),
)
def test_the_result_does_not_depend_on_the_pieces(
    stops: tuple[str, ...], pieces: list[str], include: bool
) -> None:
    whole = "".join(pieces)
    result = fed(stops, pieces, include=include)
    assert result == fed(stops, list(whole), include=include)
    shown, matched = result
    if matched:
        assert whole.startswith(shown if include else shown + matched)
    else:
        assert shown == whole
        assert not any(stop in whole for stop in stops)


def test_tokens_end_a_choice() -> None:
    params = SamplingParams(max_tokens=9, stop_token_ids=(7,))
    assert stop_by_token(2, 1, params, EOS) == Stop(FinishReason.STOP)
    assert stop_by_token(7, 1, params, EOS) == Stop(FinishReason.STOP, 7)
    assert stop_by_token(3, 1, params, EOS) is None
    assert stop_token_ids(params, EOS) == {2, 7}


def test_end_of_sequence_can_be_ignored_and_minimum_length_comes_first() -> None:
    ignoring = SamplingParams(max_tokens=9, ignore_eos=True)
    assert stop_by_token(2, 1, ignoring, EOS) is None
    assert stop_token_ids(ignoring, EOS) == frozenset()
    assert stop_by_token(2, 2, SamplingParams(max_tokens=9, min_tokens=3), EOS) is None
