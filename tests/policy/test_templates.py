from __future__ import annotations

import pytest

from isentrope.errors import PolicyError
from isentrope.policy.templates import decode, encode_prompt
from support.networks import CHAT_TEMPLATE, tokenizer


def text(prompt: object, template: str) -> str:
    ids = encode_prompt(tokenizer(chat_template=CHAT_TEMPLATE), prompt, template)  # type: ignore[arg-type]
    return decode(tokenizer(), ids)


def test_the_three_templates() -> None:
    assert text("1+2=", "raw") == "1+2="
    assert text("1+2", "a {prompt}=\n") == "a 1+2=\n"
    messages = [{"role": "b", "content": "1+1"}, {"role": "c", "content": "2"}]
    assert text(messages, "chat") == "b1+1#c2#a"
    assert text("1+2", "chat").endswith("1+2#a")  # a text becomes one message of the user


def test_braces_of_the_prompt_are_left_alone() -> None:
    class Spelling:
        eos_token_id = None

        def encode(self, value: str, **_: object) -> list[int]:
            return [ord(character) for character in value]

    ids = encode_prompt(Spelling(), "{x} {0} {prompt}", "<{prompt}>")
    assert "".join(map(chr, ids)) == "<{x} {0} {prompt}>"


def test_an_added_end_is_taken_off_and_an_added_beginning_kept() -> None:
    class Framing:
        eos_token_id = 9

        def encode(self, value: str, add_special_tokens: bool = True) -> list[int]:
            ids = [int(character) for character in value]
            return [8, *ids, 9] if add_special_tokens else ids

    assert encode_prompt(Framing(), "12", "raw") == [8, 1, 2]


def test_an_end_that_the_prompt_holds_itself_stays() -> None:
    class Plain:
        eos_token_id = 9

        def encode(self, value: str, add_special_tokens: bool = True) -> list[int]:
            return [int(character) for character in value]

    assert encode_prompt(Plain(), "19", "raw") == [1, 9]


@pytest.mark.parametrize(
    ("prompt", "template", "words"),
    [
        ([{"role": "user", "content": "1"}], "raw", 'template = "chat"'),
        ([{"role": "user", "content": "1"}], "x {prompt}", 'template = "chat"'),
        ("1", "no place", "holds {prompt}"),
        ("", "raw", "no tokens"),
    ],
)
def test_refusals(prompt: object, template: str, words: str) -> None:
    with pytest.raises(PolicyError) as caught:
        text(prompt, template)
    assert words in str(caught.value)


def test_chat_without_a_chat_template() -> None:
    with pytest.raises(PolicyError, match="none"):
        encode_prompt(tokenizer(), "1", "chat")


def test_a_chat_template_that_refuses() -> None:
    strict = tokenizer(chat_template="{{ raise_exception('no system messages') }}")
    with pytest.raises(PolicyError, match="no system messages"):
        encode_prompt(strict, [{"role": "system", "content": "1"}], "chat")


def test_decoding_leaves_out_special_tokens() -> None:
    assert decode(tokenizer(), [3, 4, 1]) == "12"
    assert decode(tokenizer(), []) == ""
