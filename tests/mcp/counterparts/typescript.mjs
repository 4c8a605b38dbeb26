// The official TypeScript SDK, of both eras. `serve`: a server over standard input and output. `check PROGRAM URL`: checks of the client against a
// server that the program is over standard input and output, and that is at the URL.
import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { McpServer, acceptedContent, fromJsonSchema, inputRequired } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const [command, program, url] = process.argv.slice(2);

function seats() {
  const server = new McpServer({ name: "seats", version: "1" });
  const object = (name) => ({ type: "object", properties: { [name]: { type: "string" } }, required: [name] });
  server.registerTool("book", { description: "Books", inputSchema: fromJsonSchema(object("flight")) }, ({ flight }, context) => {
    const answer = acceptedContent(context.mcpReq.inputResponses, "seat");
    if (answer) return { content: [{ type: "text", text: `${answer.seat} on ${flight}` }] };
    const seat = inputRequired.elicit({ message: "Which seat?", requestedSchema: object("seat") });
    return inputRequired({ inputRequests: { seat }, requestState: "the state" });
  });
  return server;
}

const text = ({ content }) => content.map((block) => block.text).join("");
const answers = { "Step 1: What is your name?": { name: "Alice" }, "Step 2: What is your favorite color?": { color: "blue" } };

async function check(mode, name, transport) {
  const client = new Client(
    { name: "checks", version: "1" },
    { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode } },
  );
  client.setRequestHandler("elicitation/create", ({ params }) => ({ action: "accept", content: answers[params.message] }));
  await client.connect(transport);
  const { tools } = await client.listTools();
  assert.equal(new Set(tools.map((tool) => tool.name)).size, 29);

  const sum = await client.callTool({ name: "sum", arguments: { a: 2, b: 40.5 } });
  assert.deepEqual([text(sum), sum.structuredContent], ["42.5", { result: 42.5 }]);
  for (const [name, args, expected] of [
    ["weather", { city: "Atlantis" }, "there is no city `Atlantis`"],
    ["weather", {}, "invalid arguments: `city` is missing, expected a string"],
  ]) {
    const failed = await client.callTool({ name, arguments: args });
    assert(failed.isError && text(failed).startsWith(expected), text(failed));
  }
  await assert.rejects(client.callTool({ name: "nope", arguments: {} }), /`nope`/);
  const reports = [];
  await client.callTool({ name: "test_tool_with_progress", arguments: {} }, { onprogress: ({ progress }) => reports.push(progress) });
  assert.deepEqual(reports, [0, 50, 100]);

  const asked = await client.callTool({ name: "test_input_required_result_multi_round", arguments: {} });
  assert.equal(client.getProtocolEra() === "modern", mode !== "legacy");
  assert.equal(text(asked), "Alice likes blue");
  await client.close();
  console.log(`${name}, ${JSON.stringify(mode)}: all checks passed`);
}

if (command === "serve") serveStdio(seats);
else {
  for (const mode of ["legacy", "auto", { pin: "2026-07-28" }]) {
    await check(mode, "stdio", new StdioClientTransport({ command: program, args: ["mcp-tools"], stderr: "ignore" }));
    await check(mode, "http", new StreamableHTTPClientTransport(new URL(url)));
  }
}
