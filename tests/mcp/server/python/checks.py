"""Checks the client of the official Python SDK against the server, over every kind of connection.

Arguments: the program that serves over standard input and output, and the URL of the server over HTTP.
"""

import sys
import tempfile
from pathlib import Path

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import ElicitResult

PROGRAM, URL = sys.argv[1:]


def check(condition, description):
    if not condition:
        raise SystemExit(f"failed: {description}")


def text(result):
    return "".join(block.text for block in result.content if block.type == "text")


async def lists(client):
    tools, cursor, pages = [], None, 0
    while True:
        page = await client.list_tools(cursor=cursor)
        tools, cursor, pages = tools + page.tools, page.next_cursor, pages + 1
        if cursor is None:
            break
    names = [tool.name for tool in tools]
    check(len(names) == 29 and len(set(names)) == 29, names)
    by_name = {tool.name: tool for tool in tools}
    total = by_name["sum"]
    check(total.input_schema["required"] == ["a", "b"], total)
    check(total.output_schema["properties"]["result"]["type"] == "number", total)
    check(total.annotations.read_only_hint is True, total)
    check(by_name["weather"].output_schema["properties"].keys() == {"city", "celsius"}, by_name["weather"])
    return pages


async def calls(client):
    # The client checks structured content against the schema.
    total = await client.call_tool("sum", {"a": 2, "b": 40.5})
    check((text(total), total.structured_content, total.is_error) == ("42.5", {"result": 42.5}, False), total)
    weather = await client.call_tool("weather", {"city": "Rome"})
    check(weather.structured_content == {"city": "Rome", "celsius": 22.5}, weather)
    plain = await client.call_tool("test_simple_text")
    check(text(plain).startswith("This is a simple text") and plain.structured_content is None, plain)
    mixed = await client.call_tool("test_multiple_content_types", {})
    check([block.type for block in mixed.content] == ["text", "image"], mixed)
    check(mixed.content[1].mime_type == "image/png", mixed)


async def errors(client):
    for name, arguments, expected in [
        ("weather", {"city": "Atlantis"}, "there is no city `Atlantis`"),
        ("weather", {}, "invalid arguments: `city` is missing, expected a string"),
        ("panics", {}, "the tool failed (reference "),
    ]:
        result = await client.call_tool(name, arguments)
        check(result.is_error and text(result).startswith(expected), result)
    try:
        await client.call_tool("nope", {})
    except MCPError as error:
        check(error.error.code == -32602 and "`nope`" in error.error.message, error)
    else:
        check(False, "an unknown tool is an error")


async def progress(client):
    reports = []

    async def record(done, total, message):
        reports.append((done, total, message))

    await client.call_tool("test_tool_with_progress", {}, progress_callback=record)
    check(reports == [(0, 100, "working"), (50, 100, "working"), (100, 100, "working")], reports)


async def answer(context, params):
    answers = {"Step 1: What is your name?": {"name": "Alice"}, "Step 2: What is your favorite color?": {"color": "blue"}}
    return ElicitResult(action="accept", content=answers[params.message])


async def questions(client):
    result = await client.call_tool("test_input_required_result_multi_round", {})
    check((text(result), result.is_error) == ("Alice likes blue", False), result)


async def cancellation(client):
    with tempfile.TemporaryDirectory() as directory:
        file = anyio.Path(Path(directory) / "cancelled")
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "wait", {"file": str(file)})
            await anyio.sleep(0.5)
            group.cancel_scope.cancel()
        with anyio.move_on_after(30):
            while not await file.exists():
                await anyio.sleep(0.05)
        check(await file.exists(), "a cancelled call is notified")
    # The session continues.
    await calls(client)


async def main():
    for mode in ["legacy", "2026-07-28", "auto"]:
        for name, server in [("stdio", StdioServerParameters(command=PROGRAM, args=["mcp-tools"])), ("http", URL)]:
            with anyio.fail_after(120):
                async with Client(server, mode=mode, elicitation_callback=answer) as client:
                    # A client that starts with a fixed protocol version requests neither.
                    if mode != "2026-07-28":
                        check(client.server_info.name == "tools", client.server_info)
                        check(client.instructions == "Call them.", client.instructions)
                    check(await lists(client) == (8 if name == "stdio" else 1), "pages")
                    for part in [calls, errors, progress, questions, cancellation]:
                        await part(client)
                    print(f"{name}, {mode}: all checks passed with protocol {client.protocol_version}")


anyio.run(main)
