#!/usr/bin/env python3
"""Writes a language model for llama.cpp that says what it is told to say, so that a real server speaks a known text.

    python3 -m venv /tmp/scripted && /tmp/scripted/bin/pip install gguf numpy
    /tmp/scripted/bin/python scripts/scripted-model.py tests/session/captures/twelve-turns/script.toml FOLDER

Reads the replies from the script and writes `model.gguf`, `mmproj.gguf` and `template.jinja` to the folder. The
template ends each prompt with a token that only says how often the model has spoken, and the model knows for every
token the one that follows it: its layer is all zeros, its output matrix is that table. What the server makes of the
text (reasoning, calls, streams, pictures, counts of tokens) is the server's own. The projector turns any picture into
nine empty places. Nothing else needs Python.
"""

import pathlib
import sys
import tomllib

import numpy
from gguf import GGUFWriter, TokenType

WIDTH, HEAD, CONTEXT = 1024, 64, 131072
SHORTEST = 24

TEMPLATE = r"""{%- if tools %}
    {{- '# Tools\n\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' + (tool | tojson) }}
    {%- endfor %}
    {{- '\n</tools>\n\nA call is <tool_call>\n{"name": <name>, "arguments": <arguments>}\n</tool_call>\n' }}
{%- endif %}
{%- set said = namespace(count=0) %}
{%- for message in messages %}
    {%- set ends = loop.last or messages[loop.index0 + 1].role != 'assistant' %}
    {{- '[' + message.role + ']\n' }}
    {%- if message.role == 'assistant' %}
        {%- if ends %}{%- set said.count = said.count + 1 %}{%- endif %}
        {%- if message.reasoning_content %}
            {{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}
        {%- endif %}
        {%- if message.content %}{{- message.content }}{%- endif %}
        {%- for call in message.tool_calls %}
            {%- set call = call.function if call.function else call %}
            {{- '\n<tool_call>\n{"name": "' + call.name + '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
    {%- elif message.role == 'tool' %}
        {{- '<tool_response>\n' + message.content + '\n</tool_response>' }}
    {%- elif message.content %}
        {{- message.content }}
    {%- endif %}
    {{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|turn_' ~ said.count ~ '|>' }}{%- endif %}
"""


def pieces(texts):
    """Each text in pieces, none of which comes twice in all of them."""
    used, result = set(), []
    for text in texts:
        made, begins = [], 0
        while begins < len(text):
            ends = begins + SHORTEST
            while text[begins:ends] in used and ends < len(text):
                ends += 1
            piece = text[begins:ends]
            if piece in used:
                # The rest of the text has been said before: it belongs to the piece in front of it.
                used.discard(made[-1])
                piece = made.pop() + piece
            used.add(piece)
            made.append(piece)
            begins = ends
        result.append(made)
    return result


def model(path, texts):
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
    follows = {}
    for turn, made in enumerate(pieces(texts)):
        tokens.append(f"<|turn_{turn}|>")
        types.append(TokenType.CONTROL)
        before = len(tokens) - 1
        for piece in made:
            follows[before] = before = len(tokens)
            tokens.append(piece)
            types.append(TokenType.USER_DEFINED)
        follows[before] = tokens.index("</s>")
    first = 259
    assert len(tokens) - first <= WIDTH, f"{len(tokens) - first} pieces are too many"
    embeddings = numpy.zeros((len(tokens), WIDTH), numpy.float32)
    output = numpy.zeros((len(tokens), WIDTH), numpy.float32)
    for token in range(first, len(tokens)):
        embeddings[token, token - first] = 1
    for token, following in follows.items():
        output[following, token - first] = 1

    writer = GGUFWriter(str(path), "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(WIDTH // HEAD)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)
    writer.add_tensor("token_embd.weight", embeddings)
    writer.add_tensor("output.weight", output)
    writer.add_tensor("output_norm.weight", numpy.ones(WIDTH, numpy.float32))
    shapes = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (HEAD, WIDTH),
        "attn_v": (HEAD, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (32, WIDTH),
        "ffn_up": (32, WIDTH),
        "ffn_down": (WIDTH, 32),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"blk.0.{name}.weight", numpy.zeros(shape, numpy.float32))
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", numpy.ones(WIDTH, numpy.float32))
    close(writer)


def projector(path):
    size, patch, width = 96, 32, 32
    writer = GGUFWriter(str(path), "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_bool("clip.use_gelu", True)
    numbers = {
        "image_size": size,
        "patch_size": patch,
        "embedding_length": width,
        "feed_forward_length": width,
        "block_count": 1,
        "projection_dim": WIDTH,
        "attention.head_count": 1,
    }
    for name, number in numbers.items():
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.0] * 3)
    writer.add_array("clip.vision.image_std", [1.0] * 3)
    writer.add_string("clip.vision.mm_patch_merge_type", "flat")
    zeros = lambda *shape: numpy.zeros(shape, numpy.float32)
    writer.add_tensor("v.patch_embd.weight", zeros(width, 3, patch, patch).astype(numpy.float16))
    writer.add_tensor("v.position_embd.weight", zeros((size // patch) ** 2, width))
    for name in ("attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_down"):
        writer.add_tensor(f"v.blk.0.{name}.weight", zeros(width, width))
        writer.add_tensor(f"v.blk.0.{name}.bias", zeros(width))
    for name in ("ln1", "ln2"):
        writer.add_tensor(f"v.blk.0.{name}.weight", numpy.ones(width, numpy.float32))
        writer.add_tensor(f"v.blk.0.{name}.bias", zeros(width))
    writer.add_tensor("mm.0.weight", zeros(width, width))
    writer.add_tensor("mm.0.bias", zeros(width))
    writer.add_tensor("mm.2.weight", zeros(WIDTH, width))
    writer.add_tensor("mm.2.bias", zeros(WIDTH))
    close(writer)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    script, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    replies = tomllib.loads(script.read_text())["reply"]
    model(folder / "model.gguf", [reply["text"] for reply in replies])
    projector(folder / "mmproj.gguf")
    (folder / "template.jinja").write_text(TEMPLATE)


if __name__ == "__main__":
    main()
