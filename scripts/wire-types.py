#!/usr/bin/env python3
"""Holds what the tests send, and what their stubs answer, against the types of the vendors' own clients.

    python3 -m venv /tmp/wire-types
    /tmp/wire-types/bin/pip install openai==3.57.0 anthropic==2.14.0
    mkdir /tmp/wire && CHEMIGRAM_WIRE_DUMP=/tmp/wire cargo test --test session
    /tmp/wire-types/bin/python scripts/wire-types.py /tmp/wire

Each request must be one that the client's own types allow, with no field that they do not know, and each reply, whole or
streamed, one that the client can read. Nothing is sent anywhere. Nothing else needs Python.
"""

import collections
import json
import pathlib
import sys

import anthropic.types
import openai.types.chat
import openai.types.responses
import pydantic
import typing_extensions
from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.input_token_count_params import InputTokenCountParams
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

# Request types (whole, streamed), the type of a reply, and that of an event.
TYPES = {
    "chat": (
        CompletionCreateParamsNonStreaming,
        CompletionCreateParamsStreaming,
        openai.types.chat.ChatCompletion,
        openai.types.chat.ChatCompletionChunk,
    ),
    "responses": (
        ResponseCreateParamsNonStreaming,
        ResponseCreateParamsStreaming,
        openai.types.responses.Response,
        openai.types.responses.ResponseStreamEvent,
    ),
    "messages": (
        MessageCreateParamsNonStreaming,
        MessageCreateParamsStreaming,
        anthropic.types.Message,
        anthropic.types.RawMessageStreamEvent,
    ),
    # Questions for the tokens of a request.
    "responses_count": (InputTokenCountParams, None, InputTokenCountResponse, None),
    "messages_count": (MessageCountTokensParams, None, anthropic.types.MessageTokensCount, None),
}
# What servers that imitate Chat Completions want beyond it, by the profiles that say so.
BEYOND = {"chat": {"usage", "reasoning_content", "reasoning_details", "extra_content"}}


ADAPTERS = {}


def tighten():
    """Lets the types of requests refuse fields that they do not know."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(("openai.types", "anthropic.types")):
            continue
        for kind in vars(module).values():
            if typing_extensions.is_typeddict(kind):
                kind.__pydantic_config__ = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)
            # Blocks of a reply may stand in a request.
            elif name.startswith("anthropic") and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
                kind.model_config = {**kind.model_config, "extra": "forbid"}


def adapter(kind):
    if kind not in ADAPTERS:
        config = None if typing_extensions.is_typeddict(kind) else pydantic.ConfigDict(arbitrary_types_allowed=True)
        ADAPTERS[kind] = pydantic.TypeAdapter(kind, config=config)
    return ADAPTERS[kind]


def exhaust(value):
    """Reads what is judged only when it is read."""
    if isinstance(value, dict):
        value = value.values()
    if not isinstance(value, (str, bytes)) and hasattr(value, "__iter__"):
        for part in value:
            exhaust(part)


def without(value, names):
    if isinstance(value, dict):
        return {k: without(v, names) for k, v in value.items() if k not in names}
    if isinstance(value, list):
        return [without(v, names) for v in value]
    return value


def events(text):
    for line in text.splitlines():
        # The clients skip a `ping`, too.
        if line.startswith("data:") and line[5:].strip() not in ("[DONE]", '{"type":"ping"}'):
            yield json.loads(line[5:])


def judge(dialect, request, reply):
    whole, streamed, message, event = TYPES[dialect]
    kind = streamed if request.get("stream") else whole
    beyond = BEYOND.get(dialect, set())
    exhaust(adapter(kind).validate_python(without(request, beyond)))
    if reply.lstrip().startswith("{"):
        pydantic.TypeAdapter(message).validate_json(reply)
        return
    for value in events(reply):
        # A chunk of Chat Completions is read leniently: servers that imitate it leave out what they like.
        if dialect != "chat":
            ADAPTERS.setdefault(event, pydantic.TypeAdapter(event)).validate_python(value)


def main():
    (folder,) = sys.argv[1:]
    tighten()
    files = sorted(pathlib.Path(folder).glob("*.json"))
    counts, failed = collections.Counter(), 0
    for file in files:
        both = json.loads(file.read_text())
        try:
            judge(both["dialect"], both["request"], both["reply"])
            counts[both["dialect"]] += 1
        except pydantic.ValidationError as error:
            failed += 1
            print(f"{file.name} ({both['dialect']}): {str(error)[:2000]}")
    print(", ".join(f"{count} of {dialect}" for dialect, count in sorted(counts.items())), f"fit; {failed} do not")
    sys.exit(1 if failed or not counts else 0)


if __name__ == "__main__":
    main()
