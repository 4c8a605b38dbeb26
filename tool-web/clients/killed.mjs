// One of two servers is killed in the middle of streams, and the chats go on with the other one. Usage: killed.mjs URL

import assert from "node:assert/strict";

const [, , base] = process.argv;
const [server] = process.env.SERVERS.split(" ").map(Number);

const post = (id) => fetch(`${base}api/chat`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ id, messages: [{ id: "m", role: "user", parts: [{ type: "text", text: "some" }] }] }),
});

/** Reads a stream until it has a text, or breaks. Returns the id of the last event. */
const read = async (response, seen, until) => {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    while (!until(seen.text)) {
      const { value, done } = await reader.read();
      if (done) return;
      seen.text += value;
    }
  } catch {
    // The connection is lost.
  }
  return reader;
};

// Each server drives some of them.
const chats = Array.from({ length: 8 }, (_, number) => ({ id: `killed-${number}`, text: "" }));
const begun = await Promise.all(chats.map(async (chat) => read(await post(chat.id), chat, (text) => text.includes("tool-input-available"))));
process.kill(server, "SIGKILL");
for (const [index, chat] of chats.entries()) {
  const rest = (async () => {
    try {
      for (;;) {
        const { value, done } = await begun[index].read();
        if (done) return;
        chat.text += value;
      }
    } catch {
      // The connection is lost.
    }
  })();
  await rest;
  const end = Date.now() + 30_000;
  while (!chat.text.includes('"type":"finish","finishReason":"stop"')) {
    assert.ok(Date.now() < end, `${chat.id} does not go on: ${chat.text}`);
    // Behind the last event that is complete.
    const known = [...chat.text.matchAll(/^id: (\d+)$/gm)].at(-1)[1];
    chat.text = chat.text.slice(0, chat.text.lastIndexOf("\n\n") + 2);
    try {
      const response = await fetch(`${base}api/chat/${chat.id}/stream`, { headers: { "last-event-id": known } });
      if (response.status === 200) await read(response, chat, () => false);
    } catch {
      // No server is known to the balancer to be alive.
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const text = [...chat.text.matchAll(/"type":"text-delta","id":"[^"]*","delta":"([^"]*)"/g)].map(([, delta]) => delta).join("");
  assert.equal(text, "Result: 20", chat.text);
  const messages = await (await fetch(`${base}api/chat/${chat.id}/messages`)).json();
  assert.equal(messages.length, 2, JSON.stringify(messages));
  assert.equal(messages[1].parts.at(-1).text, "Result: 20");
}
console.log("killed: the chats of both servers go on with the other one");
process.exit(0);
