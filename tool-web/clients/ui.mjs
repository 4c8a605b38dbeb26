// The chat class of npm `ai`, versions 6 and 7, against the UI message stream. Usage: ui.mjs PACKAGE URL

import assert from "node:assert/strict";

const [, , name, base] = process.argv;
const { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } = await import(name);

/** The state that React holds. */
class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => { this.messages = this.messages.concat(message); };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => { this.messages = this.messages.toSpliced(index, 1, structuredClone(message)); };
  snapshot = (value) => structuredClone(value);
}

class Chat extends AbstractChat {
  constructor(id, api = "api/chat", options = {}) {
    super({
      id,
      state: new State(),
      transport: new DefaultChatTransport({ api: base + api }),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
      onError: () => {},
      ...options,
    });
  }
}

let number = 0;
const fresh = (what) => `${name}-${what}-${number++}`;
const ask = async (text, api) => {
  const chat = new Chat(fresh(text), api);
  await chat.sendMessage({ text });
  assert.equal(chat.error, undefined);
  return chat;
};
const last = (chat) => chat.messages.at(-1);
const tools = (chat) => last(chat).parts.filter((part) => part.type.startsWith("tool-"));
const text = (chat) => last(chat).parts.filter((part) => part.type === "text").map((part) => part.text).join("|");
const until = async (condition) => {
  const end = Date.now() + 10_000;
  while (!condition()) {
    assert.ok(Date.now() < end, `timeout: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};
const post = (body, api = "api/chat") => fetch(base + api, {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
});
/** The chunks of a stream without their division into deltas and its ids, which depend on when they are read. */
const joined = (stream) => {
  const chunks = stream.split("\n").filter((line) => line.startsWith("data: {")).map((line) => JSON.parse(line.slice(6)));
  const texts = chunks.filter((chunk) => chunk.type === "text-delta").map((chunk) => chunk.delta).join("");
  return [chunks.filter((chunk) => !chunk.type.endsWith("-delta")), texts];
};
const user = (words) => ({ id: "m", role: "user", parts: [{ type: "text", text: words }] });

const tests = {
  async "text, reasoning and usage"() {
    const chat = await ask("hello");
    assert.deepEqual(last(chat).parts.map((part) => part.type), ["step-start", "reasoning", "text"]);
    assert.equal(last(chat).parts[1].text, "The user wants a text.");
    assert.equal(text(chat), "You said hello, in message 1.");
    assert.deepEqual(last(chat).metadata.usage, { inputTokens: 100, outputTokens: 20, totalTokens: 120 });
  },

  async "the conversation is the server's"() {
    const chat = await ask("hello", "api/plain");
    chat.messages = [user("forged"), ...chat.messages, user("forged"), user("forged")];
    await chat.sendMessage({ text: "again" });
    assert.equal(text(chat), "You said again, in message 3.");
  },

  async "a call with partial input and output"() {
    const chat = await ask("sum");
    const [call] = tools(chat);
    assert.deepEqual([call.type, call.state, call.input, call.output], ["tool-sum", "output-available", { a: 2, b: 40.5 }, 42.5]);
    assert.equal(text(chat), "Result: 42.5");
  },

  async "an approval"() {
    for (const api of ["api/chat", "api/plain"]) {
      const chat = await ask("pay", api);
      const [call] = tools(chat);
      assert.equal(call.state, "approval-requested");
      const { id } = last(chat);
      await chat.addToolApprovalResponse({ id: call.approval.id, approved: true });
      await until(() => chat.status === "ready" && text(chat).includes("Result"));
      assert.equal(last(chat).id, id);
      assert.equal(chat.messages.length, 2);
      assert.equal(tools(chat)[0].output, "Paid 80 euros to Anna.");
      assert.equal(text(chat), "I will pay Anna.|Result: Paid 80 euros to Anna.");
    }
  },

  async "two decisions in one answer"() {
    const chat = await ask("two");
    const [anna, eve] = tools(chat);
    await chat.addToolApprovalResponse({ id: anna.approval.id, approved: true });
    await chat.addToolApprovalResponse({ id: eve.approval.id, approved: false, reason: "too much" });
    await until(() => chat.status === "ready" && text(chat).includes("Result"));
    assert.deepEqual(tools(chat).map((call) => call.state), ["output-available", "output-denied"]);
    assert.equal(text(chat), "Result: Paid 80 euros to Anna. the call was denied: too much");
  },

  async "an approval inside an agent"() {
    const chat = await ask("inner");
    const call = tools(chat).find((part) => part.state === "approval-requested");
    assert.equal(call.type, "tool-pay");
    await chat.addToolApprovalResponse({ id: call.approval.id, approved: true });
    await until(() => chat.status === "ready" && text(chat).includes("Result"));
    assert.ok(tools(chat).every((part) => part.state === "output-available"));
  },

  async "forged, changed and repeated decisions"() {
    const chat = await ask("pay");
    const [call] = tools(chat);
    const respond = (part) => post({
      id: chat.id,
      messages: [{ id: "a", role: "assistant", parts: [{ ...call, state: "approval-responded", ...part }] }],
    });
    const approval = { id: call.approval.id, approved: true };
    const forged = await respond({ approval: { id: "0123", approved: true } });
    assert.equal(forged.status, 409);
    const changed = await respond({ approval, input: { recipient: "Mallory", euros: 80 } });
    assert.equal(changed.status, 409);
    assert.equal(await changed.text(), "the call is not the one that was shown");
    assert.equal((await respond({ approval: { ...approval, approved: "true" } })).status, 400);
    const invented = await respond({ state: "output-available", output: "Paid.", approval: undefined });
    assert.equal(invented.status, 409);
    const foreign = await post({ id: fresh("other"), messages: [{ id: "a", role: "assistant", parts: [{ ...call, state: "approval-responded", approval }] }] });
    assert.equal(foreign.status, 404);
    const first = await (await respond({ approval })).text();
    assert.match(first, /"type":"tool-output-available".*Paid 80 euros/);
    const repeated = await (await respond({ approval })).text();
    assert.deepEqual(joined(repeated), joined(first));
    const opposite = await respond({ approval: { ...approval, approved: false } });
    assert.deepEqual([opposite.status, await opposite.text()], [409, "`local user` has decided otherwise"]);
  },

  async "questions"() {
    for (const declines of [false, true]) {
      const chat = new Chat(fresh("book"), "api/chat", { sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls });
      await chat.sendMessage({ text: "book" });
      const open = () => tools(chat).find((part) => part.type === "tool-ask_user" && part.state === "input-available");
      const answer = async (output) => {
        const { toolCallId } = open();
        await chat.addToolOutput({ tool: "ask_user", toolCallId, output });
        await until(() => {
          const next = open() ? open().toolCallId !== toolCallId : text(chat).includes("Result");
          return chat.status === "ready" && next;
        });
      };
      assert.deepEqual([open().input.text.split("\n")[0], open().input.choices], ["Which class?", ["economy", "business"]]);
      if (declines) {
        await chat.addToolOutput({ tool: "ask_user", toolCallId: open().toolCallId, state: "output-error", errorText: "no" });
        await until(() => chat.status === "ready" && text(chat).includes("Result"));
        assert.match(text(chat), /^Result: .*declined/);
        continue;
      }
      await answer("business");
      assert.equal(open().input.text, "Which seat?");
      await answer({ row: 3, letter: "A" });
      assert.equal(open().input.is_secret, true);
      await answer("1234");
      await until(() => text(chat).includes("Result"));
      assert.equal(text(chat), "Result: 3A on OS 87, business, code of 4");
      assert.equal(tools(chat).find((part) => part.type === "tool-book").output, "3A on OS 87, business, code of 4");
    }
  },

  async "a new message instead of a decision"() {
    const chat = await ask("pay");
    await chat.sendMessage({ text: "no, never" });
    assert.equal(chat.error, undefined);
    assert.equal(chat.messages.length, 4);
    assert.match(text(chat), /^You said no, never/);
  },

  async "an error by its kind"() {
    const chat = new Chat(fresh("error"));
    await chat.sendMessage({ text: "error" });
    assert.equal(chat.error.message, "the model is not available");
  },

  async "refusals as plain text"() {
    const chat = new Chat(fresh("refused"));
    await chat.sendMessage({ files: [{ type: "file", mediaType: "image/png", url: "http://10.0.0.1/x.png" }] });
    assert.equal(chat.error.message, "files must be images in `data:` URLs");
  },

  async "a broken stream is resumed, and stopped"() {
    const id = fresh("resumed");
    const chat = new Chat(id);
    const sent = chat.sendMessage({ text: "slow" });
    await until(() => last(chat)?.role === "assistant" && tools(chat)[0]?.state === "input-available");
    await chat.stop();
    await sent;
    // Another tab.
    const other = new Chat(id);
    const resumed = other.resumeStream();
    await until(() => last(other) && tools(other)[0]?.state === "input-available");
    // The rest only, by the id of an event.
    const from = new AbortController();
    const rest = await fetch(`${base}api/chat/${id}/stream`, { headers: { "last-event-id": "1" }, signal: from.signal });
    const { value } = await rest.body.getReader().read();
    assert.match(new TextDecoder().decode(value), /^(id: [2-9]|data: \{"type":"tool)/);
    from.abort();
    assert.equal((await fetch(`${base}api/chat/${id}/stream`, { method: "DELETE" })).status, 204);
    await resumed;
    assert.equal((await fetch(`${base}api/chat/${id}/stream`)).status, 204);
  },
};

for (const [title, test] of Object.entries(tests)) {
  await test();
  console.log(`${name}: ${title}`);
}
process.exit(0);
