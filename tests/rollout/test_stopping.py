"""Stop strings where tokens and characters don't match."""

from __future__ import annotations

import torch

from isentrope.rollout.stopping import StopStrings


class Pieces:
    """A tokenizer whose tokens are given byte strings; undecodable bytes become replacement characters, as in BPE."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    def __len__(self) -> int:
        return len(self.pieces)

    def decode(self, tokens: list[int], **_: object) -> str:
        return b"".join(self.pieces[token] for token in tokens).decode(errors="replace")


def ends(stop: StopStrings, tokens: list[int]) -> int | None:
    """Index after the token that ends a response, found as the sampler looks for it."""
    for end in range(1, len(tokens) + 1):
        if stop.candidates(torch.tensor([tokens[end - 1]])) and stop.completed(tokens[:end]):
            return end
    return None


def test_a_string_over_several_tokens_and_inside_one() -> None:
    tokenizer = Pieces(b"Ques", b"tion:", b"\n", b"a\nQuestion: b", b"tion")
    stop = StopStrings(tokenizer, ["Question:"])
    assert ends(stop, [2, 0, 1]) == 3
    assert ends(stop, [2, 0, 4, 1]) is None
    assert ends(stop, [2, 3]) == 2


def test_a_long_string_of_one_byte_tokens() -> None:
    tokenizer = Pieces(*(bytes([byte]) for byte in range(256)))
    stop = StopStrings(tokenizer, ["x", "Question:"])
    assert ends(stop, [*b"12\nQuestion: 3"]) == 12
    assert ends(stop, [*b"12\nQuestions: 3"]) is None


def test_a_character_over_several_tokens() -> None:
    euro = "€".encode()
    tokenizer = Pieces(b"1", euro[:1], euro[1:2], euro[2:])
    stop = StopStrings(tokenizer, ["€"])
    assert ends(stop, [0, 1, 2, 3]) == 4
    assert ends(stop, [0, 1, 2, 0]) is None


def test_a_string_far_behind_is_not_found_again() -> None:
    tokenizer = Pieces(b"x", b"stop")
    stop = StopStrings(tokenizer, ["stop"])
    assert not stop.completed([1] + [0] * 20)


def test_only_tokens_that_can_complete_are_looked_at() -> None:
    stop = StopStrings(Pieces(b"a", b"b", b"ab", b"\xe2"), ["ab"])
    assert stop.candidates(torch.tensor([0, 1, 2, 3, 99])) == [1, 2, 3]


def test_no_strings() -> None:
    assert not StopStrings(Pieces(b"a"), [])
