// The client of AG-UI against the server. Usage: ag_ui.mjs URL

import assert from "node:assert/strict";
import { HttpAgent } from "@ag-ui/client";

const [, , base] = process.argv;
let number = 0;

const agent = () => new HttpAgent({ url: `${base}api/ag-ui`, threadId: `thread-${number++}` });

/** Runs an agent and returns its events. */
async function run(client, options = {}) {
  const events = [];
  await client.runAgent({ runId: `run-${number++}`, ...options }, {
    onEvent: ({ event }) => { events.push(event); },
    onRunErrorEvent: () => {},
  }).catch((error) => events.push({ type: "REJECTED", message: error.message }));
  return events;
}

async function ask(text) {
  const client = agent();
  client.addMessage({ id: `m${number++}`, role: "user", content: text });
  return [client, await run(client)];
}

const types = (events) => [...new Set(events.map((event) => event.type))];
const outcome = (events) => events.at(-1).outcome;
const answer = (client) => client.messages.findLast((message) => message.role === "assistant" && message.content)?.content;

const tests = {
  async "text and reasoning"() {
    const [client, events] = await ask("hello");
    assert.equal(answer(client), "You said hello, in message 1.");
    assert.equal(outcome(events).type, "success");
    assert.equal(events.at(-1).usage[0].inputTokens, 100);
    assert.ok(types(events).includes("REASONING_MESSAGE_CONTENT"));
  },

  async "a call"() {
    const [client] = await ask("sum");
    const call = client.messages.flatMap((message) => message.toolCalls ?? [])[0];
    assert.deepEqual([call.function.name, JSON.parse(call.function.arguments)], ["sum", { a: 2, b: 40.5 }]);
    assert.equal(client.messages.find((message) => message.role === "tool").content, "42.5");
    assert.equal(answer(client), "Result: 42.5");
  },

  async "an approval with changed arguments"() {
    const [client, events] = await ask("pay");
    const { interrupts } = outcome(events);
    assert.equal(interrupts.length, 1);
    assert.ok(interrupts[0].responseSchema.properties.editedArgs);
    const resume = [{ interruptId: interrupts[0].id, status: "resolved", payload: { approved: true, editedArgs: { recipient: "Anna", euros: 20 } } }];
    const rest = await run(client, { resume });
    assert.equal(outcome(rest).type, "success");
    assert.ok(!types(rest).includes("TOOL_CALL_START"));
    assert.equal(answer(client), "Result: Paid 20 euros to Anna.");
  },

  async "denied, cancelled, inside"() {
    for (const [text, given] of [["pay", { status: "cancelled" }], ["inner", { status: "resolved", payload: { approved: false, reason: "no" } }]]) {
      const [client, events] = await ask(text);
      const resume = outcome(events).interrupts.map(({ id }) => ({ interruptId: id, ...given }));
      const rest = await run(client, { resume });
      assert.equal(outcome(rest)?.type, "success", JSON.stringify(rest.at(-1)));
      assert.match(answer(client), /denied/);
    }
  },

  async "incomplete, forged and repeated"() {
    const [client, events] = await ask("two");
    const { interrupts } = outcome(events);
    const [one, other] = interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
    // The client itself refuses some of these; another one might not.
    const send = async (resume) => {
      const response = await fetch(`${base}api/ag-ui`, {
        method: "POST", headers: { "content-type": "application/json" },
        body: JSON.stringify({ threadId: client.threadId, runId: "x", messages: [], tools: [], context: [], resume }),
      });
      return (await response.text()).trim().split("\n\n").map((frame) => JSON.parse(frame.replace(/^.*data: /s, ""))).at(-1);
    };
    assert.equal((await send([one])).message, "`resume` must decide about all interrupts");
    assert.equal((await send([one, other, { ...one, interruptId: "0123" }])).type, "RUN_ERROR");
    assert.equal((await send([one, other])).outcome.type, "success");
    assert.equal((await send([one, other])).outcome.type, "success");
    assert.equal((await send([one, { ...other, payload: { approved: false } }])).message, "`local user` has decided otherwise");
  },

  async "questions"() {
    const [{ threadId }, events] = await ask("book");
    let last = events;
    // A client that is opened again has what the server has.
    const messages = await (await fetch(`${base}api/ag-ui/${threadId}/messages`)).json();
    const client = new HttpAgent({ url: `${base}api/ag-ui`, threadId, initialMessages: messages });
    client.pendingInterrupts = messages.at(-1).metadata.interrupts;
    assert.deepEqual(client.pendingInterrupts, outcome(last).interrupts);
    for (const payload of ["economy", { row: 3, letter: "A" }, "12"]) {
      const [interrupt] = outcome(last).interrupts;
      assert.equal(interrupt.reason, "input_required");
      last = await run(client, { resume: [{ interruptId: interrupt.id, status: "resolved", payload }] });
    }
    assert.equal(answer(client), "Result: 3A on OS 87, economy, code of 2");
  },

  async "a tool of the frontend"() {
    const tools = [{
      name: "pick_color", description: "Lets the user pick a color",
      parameters: { type: "object", properties: { title: { type: "string" } }, required: ["title"] },
    }, { name: "pay", description: "Does not take the place of the agent's", parameters: { type: "object" } }];
    const client = agent();
    client.addMessage({ id: `m${number++}`, role: "user", content: "color" });
    const events = await run(client, { tools });
    const { type, pendingToolCallIds } = outcome(events);
    assert.deepEqual([type, pendingToolCallIds.length], ["success", 1]);
    const call = client.messages.flatMap((message) => message.toolCalls ?? [])[0];
    assert.deepEqual([call.id, call.function.name], [pendingToolCallIds[0], "pick_color"]);
    client.addMessage({ id: `m${number++}`, role: "tool", toolCallId: call.id, content: "red" });
    await run(client, { tools });
    assert.equal(answer(client), "Result: red");
    // Another conversation does not have it.
    const [other] = await ask("color");
    assert.equal(answer(other), "You said color, in message 1.");
  },

  async "a reader that reconnects"() {
    const [client] = await ask("hello");
    client.addMessage({ id: `m${number++}`, role: "user", content: "slow" });
    const running = run(client);
    const read = async (headers) => {
      for (;;) {
        const response = await fetch(`${base}api/ag-ui/${client.threadId}/stream`, { headers });
        if (response.status !== 204) return response.body.pipeThrough(new TextDecoderStream()).getReader();
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    };
    const until = async (reader, done) => {
      let text = "";
      while (!done(text)) text += (await reader.read()).value;
      await reader.cancel();
      return text.split("\n").filter((line) => line.startsWith("data: ")).map((line) => JSON.parse(line.slice(6)));
    };
    const first = await until(await read({}), (text) => text.includes("TOOL_CALL_END"));
    assert.equal(first[0].type, "RUN_STARTED");
    const { messages } = first.find((event) => event.type === "MESSAGES_SNAPSHOT");
    assert.deepEqual(messages.map(({ role, content }) => [role, content]),
      [["user", "hello"], ["assistant", "You said hello, in message 1."], ["user", "slow"]]);
    const rest = await until(await read({ "last-event-id": "1" }), (text) => text.includes("TOOL_CALL_END"));
    assert.ok(!types(rest).includes("RUN_STARTED") && !types(rest).includes("MESSAGES_SNAPSHOT"), types(rest).join());
    await fetch(`${base}api/ag-ui/${client.threadId}/stream`, { method: "DELETE" });
    assert.equal(outcome(await running).type, "cancelled");
  },

  async "errors by their kind"() {
    const [, events] = await ask("error");
    assert.deepEqual([events.at(-1).type, events.at(-1).message], ["RUN_ERROR", "the model is not available"]);
  },
};

for (const [title, test] of Object.entries(tests)) {
  await test();
  console.log(`ag-ui: ${title}`);
}
process.exit(0);
