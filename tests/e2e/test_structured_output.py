"""Structured output of the real model, through the whole server."""

import asyncio
import json
import re
from typing import Any

import pytest

from sluicegate_client import AsyncClient, Client, FinishReason, InvalidRequestError
from sluicegate_client.requests import GenerateOptions
from tests.e2e.server import Server

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
GREEDY: GenerateOptions = {"temperature": 0, "max_tokens": 40}
SAMPLED: GenerateOptions = {"temperature": 1, "seed": 7, "max_tokens": 40}
PROMPT = "Anna is 31 years old. As JSON: "
TAG = {
    "format": {
        "type": "tag",
        "begin": "<call>",
        "content": {"type": "json_schema", "json_schema": SCHEMA},
        "end": "</call>",
    }
}
BAD_FORMS: list[tuple[GenerateOptions, str]] = [
    ({"json_schema": "{"}, "sampling_params.json_schema: must be a JSON object"),
    ({"json_schema": {"items": 5}}, "sampling_params.json_schema: schema must be an object or boolean"),
    ({"json_schema": {"type": "string", "pattern": "("}}, "sampling_params.json_schema: .*unclosed group"),
    ({"json_schema": {"$ref": "#"}}, "sampling_params.json_schema: no text satisfies it"),
    ({"regex": "("}, "sampling_params.regex: .*unclosed group"),
    ({"regex": "(a{1000}){1000}"}, "sampling_params.regex: "),
    ({"choice": []}, "sampling_params.choice: must have at least one string"),
    ({"grammar": "root ::= other"}, "sampling_params.grammar: line 1, column 10: there is no rule 'other'"),
    ({"json_object": False}, "sampling_params.json_object: must be true or unset, got false"),
    ({"structural_tag": "{}"}, "sampling_params.structural_tag: must be a JSON object with format"),
]


def is_person(text: str) -> bool:
    person = json.loads(text)
    return person.keys() == {"name", "age"} and len(person["name"]) <= 20 and 0 <= person["age"] <= 150


def test_every_kind_of_form_is_kept_to(server: Server) -> None:
    """All at once, greedy and drawn, beside a request without a form."""

    async def ask() -> dict[str, str]:
        async with AsyncClient(server.address) as client:
            forms: dict[str, GenerateOptions] = {
                "free": {},
                "json_schema": {"json_schema": SCHEMA},
                "regex": {"regex": r"\(\d{3}\) \d{3}-\d{4}"},
                "choice": {"choice": ["yes", "no", "no idea"]},
                "grammar": {"grammar": 'root ::= sum\nsum ::= [0-9]+ | "(" sum "+" sum ")"'},
                "structural_tag": {"structural_tag": json.dumps(TAG)},
            }
            answers = await asyncio.gather(*(client.generate(PROMPT, **GREEDY, **form) for form in forms.values()))
            drawn = await client.generate(PROMPT, **SAMPLED, json_schema=SCHEMA)
            return {"drawn": drawn.text, **{kind: answer.text for kind, answer in zip(forms, answers, strict=True)}}

    texts = asyncio.run(ask())
    assert is_person(texts["json_schema"])
    assert is_person(texts["drawn"])
    assert re.fullmatch(r"\(\d{3}\) \d{3}-\d{4}", texts["regex"])
    assert texts["choice"] in ("yes", "no", "no idea")
    assert re.fullmatch(r"[0-9(+)]+", texts["grammar"])
    assert is_person(texts["structural_tag"].removeprefix("<call>").removesuffix("</call>"))
    with Client(server.address) as client:
        assert texts["free"] == client.generate(PROMPT, **GREEDY).text


def test_with_other_features(client: Client) -> None:
    """Several sequences have a grammar each; stop strings and log-probabilities are as without one."""
    several = client.generate(PROMPT, **SAMPLED, n=3, json_schema=SCHEMA, logprobs=2)
    assert len({choice.text for choice in several.outputs}) > 1
    for choice in several.outputs:
        assert is_person(choice.text)
        assert choice.finish_reason is FinishReason.STOP
        assert len(choice.logprobs) == len(choice.token_ids)
    stopped = client.generate(PROMPT, **GREEDY, json_schema=SCHEMA, stop='"age"')
    assert json.loads(stopped.text.rstrip().rstrip(",") + "}").keys() == {"name"}


def test_bad_forms_are_refused_and_streams_go_on(server: Server) -> None:
    """Each by its field, after a good one, while another request is answered as if it were alone."""

    async def ask() -> tuple[str, str]:
        async with AsyncClient(server.address) as client:
            alone = (await client.generate("Once upon a time", temperature=0, max_tokens=60)).text
            beside = asyncio.ensure_future(client.generate("Once upon a time", temperature=0, max_tokens=60))
            assert (await client.generate(PROMPT, **GREEDY, choice=["a"])).text == "a"
            for form, message in BAD_FORMS:
                with pytest.raises(InvalidRequestError, match=message):
                    await client.generate(PROMPT, **GREEDY, **form)
            assert is_person((await client.generate(PROMPT, **GREEDY, json_schema=SCHEMA)).text)
            return alone, (await beside).text

    alone, beside = asyncio.run(ask())
    assert alone == beside
