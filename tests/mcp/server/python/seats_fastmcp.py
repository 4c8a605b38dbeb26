"""A server of FastMCP that asks during a call, in the way of the older revisions alone."""

from dataclasses import dataclass

from fastmcp import Context, FastMCP

server = FastMCP("seats")


@dataclass
class Seat:
    seat: str


@server.tool
async def book(flight: str, context: Context) -> str:
    answer = await context.elicit("Which seat?", Seat)
    return f"{answer.data.seat} on {flight}"


server.run(show_banner=False)
