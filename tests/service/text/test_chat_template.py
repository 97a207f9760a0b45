"""service.text.chat_template: templates as Hugging Face runs them."""

import re
from typing import Any

import pytest

from service.text.chat_template import ChatTemplate, ChatTemplateError

_MESSAGES = [{"role": "user", "content": "1 < 2 & 'ü'"}, {"role": "assistant", "content": "yes"}]


def _render(source: str, add_generation_prompt: bool = True, **kwargs: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(_MESSAGES, add_generation_prompt, kwargs)


def test_variables_are_messages_special_tokens_and_the_caller_s_own() -> None:
    """An unknown one is empty."""
    source = "{{ bos_token }}{{ messages[0].role }} {{ messages[1]['content'] }} {{ thinking }} {{ nothing }}|"
    assert _render(source, thinking=True) == "<s>user yes True |"


def test_generation_prompt_is_the_caller_s_choice() -> None:
    """add_generation_prompt reaches the template."""
    source = "{% if add_generation_prompt %}go{% endif %}"
    assert (_render(source, True), _render(source, False)) == ("go", "")


def test_blocks_leave_no_lines_behind() -> None:
    """trim_blocks and lstrip_blocks: a block on a line of its own leaves nothing of the line."""
    source = (
        "{% for message in messages %}\n    {% if loop.first %}\n{{ message.role }}\n    {% endif %}\n{% endfor %}\n"
    )
    assert _render(source) == "user\n"


def test_text_is_not_escaped_and_to_json_is_plain_json() -> None:
    """Neither for HTML nor to ASCII; indent and separators are the template's choice."""
    assert _render("{{ messages[0].content }}") == "1 < 2 & 'ü'"
    assert _render("{{ messages[0] | tojson }}") == '{"role": "user", "content": "1 < 2 & \'ü\'"}'
    assert _render("{{ [1, 2] | tojson(indent=1) }}") == "[\n 1,\n 2\n]"


def test_loop_controls_and_generation_tags_are_known() -> None:
    """`break`, and the tag that marks the assistant's words for training."""
    assert _render("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}") == "user"
    assert _render("{% generation %}{{ messages[1].content }}{% endgeneration %}!") == "yes!"


def test_date_is_at_hand() -> None:
    """strftime_now, as Llama's templates use it."""
    assert re.fullmatch(r"\d\d \w{3} \d{4}", _render("{{ strftime_now('%d %b %Y') }}"))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for %}", "Expected"),
        ("{{ messages[7].role.x }}", "no element 7"),
        ("{{ 1 / 0 }}", "zero"),
    ],
)
def test_any_failure_of_a_template_says_why(source: str, said: str) -> None:
    """Refusal, broken syntax, wrong access, arithmetic: one typed error."""
    with pytest.raises(ChatTemplateError, match=said):
        _render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% for i in range(10000000) %}{% endfor %}",
    ],
)
def test_sandbox_holds(source: str) -> None:
    """No way to Python's insides, no change of the conversation, no endless range."""
    with pytest.raises(ChatTemplateError):
        _render(source)
    assert len(_MESSAGES) == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a\n{% if %}", "the chat template is broken in line 2: Expected an expression"),
        ("{{ x | no_such_filter }}", "the chat template is broken in line 1: No filter named 'no_such_filter'"),
        ("{{ " + 10_000 * "(" + "}}", "the chat template is broken: RecursionError"),
    ],
)
def test_broken_source(source: str, message: str) -> None:
    """What is no template is found when it is read, not when it is first used."""
    with pytest.raises(ChatTemplateError, match=f"^{message}"):
        ChatTemplate(source, {})


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ 'x' * 10**9 }}", "text would have more than"),
        ("{{ 10**9 * 'x' }}", "text would have more than"),
        ("{{ [0] * 10**9 }}", "text would have more than"),
        ("{{ 10 ** (10 ** 10) }}", "number would have more than"),
        ("{% set ns = namespace(n=2) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}", "number"),
        ("{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "text"),
        ("{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "text"),
        ("{{ 'x'.ljust(10**9) }}", "text would have more than"),
        ("{{ 'x' | center(10**9) }}", "text would have more than"),
        ("{{ 'x'.replace('x', 'y' * 10**7).replace('y', 'z' * 10**7) }}", "text would have more than"),
        ("{{ ('x' * 10**7).join(['a'] * 10**4) }}", "text would have more than"),
        ("{{ '{:>1000000000}'.format(1) }}", "width of more than six digits"),
        ("{{ '%1000000000d' % 1 }}", "width of more than six digits"),
        ("{% for i in range(99999) %}{{ messages[0].content * 10**5 }}{% endfor %}", "text would have more than"),
        ("{% for i in range(10**6) %}{% endfor %}", "Range too big"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
    ],
)
def test_what_uses_up_too_much(source: str, said: str) -> None:
    """A template that would make texts or numbers without end is an error, at once."""
    with pytest.raises(ChatTemplateError, match=f"the chat template failed: .*{said}"):
        _render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{% set x = m(n - 1) %}{% set y = m(n - 1) %}{% endif %}{% endmacro %}{{ m(99) }}",
    ],
)
def test_what_does_not_end(source: str) -> None:
    """Loops in loops and macros that call themselves twice are ended when their time is up."""
    with pytest.raises(ChatTemplateError, match=r"it took more than 0\.2 s"):
        ChatTemplate(source, {}, max_cpu_s=0.2).render(_MESSAGES, True, {})


def test_what_templates_do_all_the_time_is_as_ever() -> None:
    """Operators and methods within the bounds."""
    source = "{{ '-' * 3 ~ (2 * 3 + 1) }} {{ '%5.1f' % 2 }} {{ [1] + [2] }} {{ 'a-b'.replace('-', '+') }} {{ 7 % 4 }}"
    assert _render(source) == "---7   2.0 [1, 2] a+b 3"
