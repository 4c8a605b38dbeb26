"""A server of the official Python SDK that asks during a call. With the argument `older`, it speaks an older revision."""

import json
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult, ToolAnnotations
from pydantic import BaseModel

server = MCPServer("seats")


class Seat(BaseModel):
    seat: str


# A tool that could not be called again would lose its call with the key of the process, which seals its state.
@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def book(flight: str, context: Context) -> str | InputRequiredResult:
    if context.request_context.protocol_version < "2026-07-28":
        answer = await context.elicit("Which seat?", Seat)
        return f"{answer.data.seat} on {flight}"
    answer = (context.input_responses or {}).get("seat")
    if answer is not None:
        return f"{answer.content['seat']} on {flight}"
    params = ElicitRequestFormParams(message="Which seat?", requested_schema=Seat.model_json_schema())
    return InputRequiredResult(input_requests={"seat": ElicitRequest(params=params)}, request_state=flight)


if "older" in sys.argv:
    # The SDK always knows the probe of clients.
    probe = json.loads(sys.stdin.buffer.readline())
    error = {"code": -32601, "message": "Method not found"}
    print(json.dumps({"jsonrpc": "2.0", "id": probe["id"], "error": error}), flush=True)
server.run()
