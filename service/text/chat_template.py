"""A model's chat template: Jinja as Hugging Face runs it, in a sandbox."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from service.text.template_bounds import ALLOWANCE, MAX_CPU_S, Allowance, BoundedEnvironment


class ChatTemplateError(ValueError):
    """The template refused the conversation, or is broken itself."""


class ChatTemplate:
    """``special_tokens`` are variables of the template: bos_token, eos_token and the like."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], max_cpu_s: float = MAX_CPU_S) -> None:
        """Raises ChatTemplateError for a source that is no template."""
        self._template = _compiled(source)
        self._special_tokens = dict(special_tokens)
        self._max_cpu_s = max_cpu_s

    def render(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool, template_kwargs: Mapping[str, Any]
    ) -> str:
        """The conversation as the text that the model was trained on.

        ``template_kwargs`` are further variables. Raises ChatTemplateError.
        """
        variables = {**self._special_tokens, **template_kwargs}
        variables.update(messages=messages, add_generation_prompt=add_generation_prompt)
        token = ALLOWANCE.set(allowance := Allowance(self._max_cpu_s))
        try:
            return "".join(self._pieces(variables, allowance))
        except Exception as error:  # a template is a program: it can fail in any way
            raise ChatTemplateError(f"the chat template failed: {error}") from error
        finally:
            ALLOWANCE.reset(token)

    def _pieces(self, variables: dict[str, Any], allowance: Allowance) -> Iterator[str]:
        """Counted as they come: what stands in the template itself is counted nowhere else."""
        for piece in self._template.generate(variables):
            allowance.put_out(len(piece))
            yield piece


def _compiled(source: str) -> Template:
    try:
        return _environment().from_string(source)
    except TemplateSyntaxError as error:
        raise ChatTemplateError(f"the chat template is broken in line {error.lineno}: {error.message}") from error
    except Exception as error:
        raise ChatTemplateError(f"the chat template is broken: {error!r}") from error


def _environment() -> BoundedEnvironment:
    environment = BoundedEnvironment([loopcontrols, _GenerationTag], trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _GenerationTag(Extension):
    """``{% generation %}`` marks the assistant's words for training; here it is only what it encloses."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    # Jinja's own filter escapes for HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)
