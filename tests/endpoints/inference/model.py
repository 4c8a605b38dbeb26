"""Generates a model for llama.cpp without any knowledge that follows every grammar: model.py FILE.

The model is a llama with one layer whose attention and feed-forward add nothing: the next token depends only on the last one,
by the table below. It babbles words, closes what it has opened, and ends; only the server's grammars shape its calls and
answers. Tokens are bytes, except the markers of ChatML and of calls.
"""

import string
import sys

import gguf
import numpy as np

START, END, CALL, CALL_END = "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>\n"
CONTEXT = 131072
WIDTH, HEADS, HIDDEN = 320, 5, 64

TEMPLATE = """\
{%- if tools -%}
<|im_start|>system
You may call these functions, whose signatures stand within <tools></tools>:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
For each call, write a JSON object with the name and the arguments within <tool_call></tool_call>:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ "user" if message.role == "tool" else message.role }}
{%- if message.role == "tool" %}
<tool_response>
{{ message.content }}
</tool_response>
{%- else -%}
{%- if message.content %}
{{ message.content }}
{%- endif -%}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
{%- endif -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""


def byte_names():
    """Returns the name of each byte in a GPT-2 vocabulary, where no name is blank or unprintable."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    names = {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(others)}
    return [names[byte] for byte in range(256)]


MARKS = [START, END, CALL, CALL_END]
VOCABULARY = byte_names() + MARKS
ID = {chr(byte): byte for byte in range(128)} | {mark: 256 + place for place, mark in enumerate(MARKS)}


def likelihoods():
    """Returns the logits of the next token, with a row for each last token."""
    logits = np.full((len(VOCABULARY), len(VOCABULARY)), -9.0)

    def follow(last, following, logit):
        for one in last:
            for next_one in following:
                logits[ID[one], ID[next_one]] = logit

    letters, digits, closing = string.ascii_lowercase, string.digits, '"}]'
    # Words, some with an accent, so that characters have several tokens; and an occasional end.
    follow(ID, letters, 0.0)
    follow(letters, " ", 2.0)
    follow(letters, "\n", 0.0)
    follow(letters, [END], 1.0)
    first, second = "é".encode()
    logits[[ID[letter] for letter in letters], first] = 1.0
    logits[first] = -99.0
    logits[first, second] = 0.0
    logits[second] = logits[ID["e"]]
    # Calls start on a new line, and so does the answer.
    follow("\n", [CALL], 2.5)
    follow([CALL_END], [END, CALL], 4.0)
    follow([CALL], "\n", 3.0)
    # JSON without whitespace that is closed soon.
    follow(digits, digits, 0.0)
    follow(letters + digits, '"', 0.5)
    logits[second, ID['"']] = 0.5
    follow('"', closing + ",:", 1.0)
    follow(digits + "el}]", "}],", 1.0)
    follow("}]", [END], 2.0)
    follow("}", "\n", 2.0)
    follow(":,[{", '"', 1.0)
    follow(":,[", digits + "tf{", 1.0)
    logits[:, ID[START]] = -99.0
    return logits


def main(file):
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("babbler")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(VOCABULARY) + 1)

    kinds = [gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.USER_DEFINED] * 2
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    # A list of merges must not be empty: this one creates a token that is never likely.
    writer.add_token_list([*VOCABULARY, "QZ"])
    writer.add_token_types([*kinds, gguf.TokenType.NORMAL])
    writer.add_token_merges(["Q Z"])
    writer.add_bos_token_id(ID[START])
    writer.add_eos_token_id(ID[END])
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)

    tokens = len(VOCABULARY) + 1
    embedding = np.zeros((tokens, WIDTH), np.float32)
    embedding[np.arange(tokens), np.arange(tokens)] = 1.0
    output = np.full((tokens, WIDTH), -99.0, np.float32)
    output[: len(VOCABULARY), : len(VOCABULARY)] = likelihoods().T
    # The norm turns a 1 of the embedding into the square root of the width.
    output /= np.sqrt(WIDTH)

    nothing = np.zeros((WIDTH, WIDTH), np.float32)
    ones = np.ones(WIDTH, np.float32)
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output.weight", output)
    writer.add_tensor("output_norm.weight", ones)
    writer.add_tensor("blk.0.attn_norm.weight", ones)
    writer.add_tensor("blk.0.ffn_norm.weight", ones)
    for name in ["attn_q", "attn_k", "attn_v", "attn_output"]:
        writer.add_tensor(f"blk.0.{name}.weight", nothing)
    writer.add_tensor("blk.0.ffn_gate.weight", np.zeros((HIDDEN, WIDTH), np.float32))
    writer.add_tensor("blk.0.ffn_up.weight", np.zeros((HIDDEN, WIDTH), np.float32))
    writer.add_tensor("blk.0.ffn_down.weight", np.zeros((WIDTH, HIDDEN), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
