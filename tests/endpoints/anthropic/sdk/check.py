"""Reads the streams of tests/wire/anthropic with the SSE decoder and the accumulation of Anthropic's SDK, and compares the blocks with
what the cases expect: check.py FOLDER."""

import glob
import json
import sys

from anthropic._streaming import SSEDecoder
from anthropic.lib.streaming._messages import accumulate_event


def blocks_of(body):
    """Returns the content as the SDK accumulates it, or None if the stream reports an error."""
    message, buffers = None, {}
    for event in SSEDecoder().iter_bytes(iter([body])):
        if not event.data or event.event in (None, "ping"):
            continue
        data = json.loads(event.data)
        if data["type"] == "error":
            return None
        message = accumulate_event(event=data, current_snapshot=message, json_bufs=buffers)
    return [block.to_dict() for block in message.content]


wrong, read = [], 0
for path in sorted(glob.glob(f"{sys.argv[1]}/*.sse")):
    with open(path, "rb") as file:
        body = file.read()
    with open(path.removesuffix(".sse") + ".expected.json") as file:
        expected = json.load(file)
    # The SDK cannot parse the input of a call that was truncated.
    if expected["outcome"] != "complete" or expected["finish_reason"] == "max_tokens":
        continue
    blocks = blocks_of(body)
    read += 1
    text = "".join(block["text"] for block in blocks if block["type"] == "text") or None
    thinking = "".join(block["thinking"] for block in blocks if block["type"] == "thinking") or None
    calls = [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    found = (text, thinking, calls)
    wanted = [(call["id"], call["name"], call["input"]) for call in expected["tool_calls"]]
    if found != (expected["content"], expected["reasoning"], wanted):
        wrong.append(f"{path}: the SDK reads {found}")
    echo = expected.get("echo", {}).get("content")
    if echo is not None and blocks != echo:
        wrong.append(f"{path}: the SDK reads the blocks {json.dumps(blocks)}")
if wrong or read < 10:
    sys.exit("\n".join(wrong) or f"only {read} streams were read")
print(f"{read} streams")
