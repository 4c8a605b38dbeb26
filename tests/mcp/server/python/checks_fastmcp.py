"""Checks the client of FastMCP against the server.

Arguments: the program that serves over standard input and output, and the URL of the server over HTTP.
"""

import sys

import anyio
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError

PROGRAM, URL = sys.argv[1:]


def check(condition, description):
    if not condition:
        raise SystemExit(f"failed: {description}")


async def ignore(_):
    pass


async def checks(transport):
    async with Client(transport, log_handler=ignore) as client:
        names = [tool.name for tool in await client.list_tools()]
        check(len(names) == 29 and len(set(names)) == 29, names)
        # The client checks structured content against the schema.
        total = await client.call_tool("sum", {"a": 2, "b": 40.5})
        check((total.structured_content, total.is_error) == ({"result": 42.5}, False), total)
        weather = await client.call_tool("weather", {"city": "Rome"})
        check(weather.structured_content == {"city": "Rome", "celsius": 22.5}, weather)
        try:
            await client.call_tool("weather", {"city": "Atlantis"})
        except ToolError as error:
            check("there is no city `Atlantis`" in str(error), error)
        else:
            check(False, "Atlantis has a weather")


async def main():
    await checks(StdioTransport(PROGRAM, ["mcp-tools"]))
    await checks(URL)


anyio.run(main)
