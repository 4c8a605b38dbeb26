"""Checks the agents of LangChain and of the OpenAI Agents SDK as hosts of the server: they list its tools, and call them as their models ask.

Arguments: the program that serves over standard input and output, and the URL of the server over HTTP. The models are scripted.
"""

import json
import sys

import anyio
from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall
from langchain_mcp_adapters.client import MultiServerMCPClient
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

PROGRAM, URL = sys.argv[1:]

# What the models call, and a part of what they read.
CALLS = [
    ("sum", {"a": 2, "b": 40.5}, "42.5"),
    ("weather", {"city": "Rome"}, "22.5"),
    ("weather", {"city": "Atlantis"}, "there is no city `Atlantis`"),
    ("sum", {"a": "two", "b": 1}, "invalid arguments: `a`"),
    ("test_simple_text", {}, "This is a simple text response for testing."),
]


def check(condition, description):
    if not condition:
        raise SystemExit(f"failed: {description}")


def check_tools(names, description):
    check(len(names) == 29 and len(set(names)) == 29 and "sum" in names, (description, names))


def check_read(texts, description):
    check(len(texts) == len(CALLS), (description, texts))
    for text, (name, _, expected) in zip(texts, CALLS):
        check(expected in text, (description, name, text))


class LangChainModel(GenericFakeChatModel):
    """Calls the tools in one reply, and then answers."""

    offered: list = []

    def bind_tools(self, tools, **kwargs):
        self.offered = [tool.name for tool in tools]
        return self


async def langchain(connection):
    client = MultiServerMCPClient({"tools": connection})
    calls = [ToolCall(name=name, args=args, id=f"call_{at}") for at, (name, args, _) in enumerate(CALLS)]
    model = LangChainModel(messages=iter([AIMessage(content="", tool_calls=calls), AIMessage(content="Done.")]))
    agent = create_agent(model, await client.get_tools())
    result = await agent.ainvoke({"messages": [("user", "Call the tools.")]})
    check_tools(model.offered, "LangChain")
    messages = result["messages"]
    check(messages[-1].content == "Done.", messages)
    check_read([str(message.content) for message in messages if message.type == "tool"], "LangChain")


class OpenAiModel(Model):
    """Calls the tools in one reply, and then answers."""

    def __init__(self):
        self.offered, self.read = [], []

    async def get_response(self, system_instructions, input, model_settings, tools, *args, **kwargs):
        self.offered = [tool.name for tool in tools]
        self.read = [item["output"] for item in input if item.get("type") == "function_call_output"]
        if self.read:
            text = ResponseOutputText(annotations=[], text="Done.", type="output_text")
            output = [
                ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            ]
        else:
            output = [
                ResponseFunctionToolCall(
                    arguments=json.dumps(arguments), call_id=f"call_{at}", name=name, type="function_call"
                )
                for at, (name, arguments, _) in enumerate(CALLS)
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


async def openai_agents(server):
    async with server:
        model = OpenAiModel()
        agent = Agent(name="assistant", model=model, mcp_servers=[server])
        result = await Runner.run(agent, [{"role": "user", "content": "Call the tools."}])
        check(result.final_output == "Done.", result)
        check_tools(model.offered, "OpenAI Agents")
        check_read([json.dumps(text, ensure_ascii=False) for text in model.read], "OpenAI Agents")


async def main():
    set_tracing_disabled(True)
    await langchain({"transport": "stdio", "command": PROGRAM, "args": ["mcp-tools"]})
    await langchain({"transport": "streamable_http", "url": URL})
    await openai_agents(MCPServerStdio({"command": PROGRAM, "args": ["mcp-tools"]}))
    await openai_agents(MCPServerStreamableHttp({"url": URL}))


anyio.run(main)
print("LangChain's and OpenAI's agents call the tools of the server")
