// The page. Texts become text nodes, never markup, and characters that nobody sees are shown as escapes.

const api = new URL("api/runs", import.meta.url).pathname;
const byId = (id) => document.getElementById(id);
const maxChars = 4000;

/** Creates an element. Properties that start with `on` are listeners; children are elements or texts. */
function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const hidden = /(?![\n\t])[\p{Cc}\p{Default_Ignorable_Code_Point}\u2028\u2029\ufff9-\ufffb\p{Noncharacter_Code_Point}]/gu;
const joined = /[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f\u0600-\u0dff\u1780-\u18af]/u;

/** Shows hidden characters, except for those that join emojis and letters. Schemas of others can contain anything in place of a text. */
function visible(text) {
  return String(text).replaceAll("\r\n", "\n").replace(hidden, (char, at, whole) => {
    const before = [...whole.slice(Math.max(0, at - 2), at)].pop() ?? "";
    if ("\u200c\u200d\ufe0e\ufe0f".includes(char) && joined.test(before)) return char;
    return `\\u{${char.codePointAt(0).toString(16)}}`;
  });
}

/** The lines of a text, of which those that are URLs lead there. They are shown in full; one whose host is not what it seems to be is a text. */
function linked(text) {
  const isUrl = (line) => /^https?:\/\/[a-z0-9.-]+(:\d+)?([/?#][!-[\]-~]*)?$/i.test(line);
  const link = (url) => el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, url);
  return visible(text).split(/(\n)/).map((line) => (isUrl(line) ? link(line) : line));
}

/** The parts of a JSON text, whose strings cannot reorder what is around them although they are written from right to left. */
const isolated = (json) => visible(json).split(/("(?:[^"\\]|\\.)*")/).map((part) => (part[0] === '"' ? el("bdi", {}, part) : part));

/** A text, folded if it is long. */
function long(text, className = "", parts = (text) => [visible(text)]) {
  const pre = el("pre", { className }, ...parts(text.slice(0, maxChars)));
  if (text.length <= maxChars) return pre;
  const more = el("button", {
    onclick: () => { pre.replaceChildren(...parts(text)); more.remove(); },
  }, `Show all ${text.length.toLocaleString()} characters`);
  return el("div", {}, pre, more);
}

function age(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

// The key comes in the fragment of the URL, stays in this tab, and is sent as a bearer token.
let key = sessionStorage.getItem("tool-web-key");
function takeKey() {
  const given = /^#key=(.+)$/.exec(location.hash);
  if (!given) return;
  key = decode(given[1]);
  sessionStorage.setItem("tool-web-key", key);
  history.replaceState(null, "", location.pathname);
}

class Refused extends Error {}

/** Decodes a part of the URL, which a link of another page can contain. */
function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

/** Sends a request, with a body of JSON if there is one. */
async function request(path, body, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.authorization = `Bearer ${key}`;
  if (body) headers["content-type"] = "application/json";
  const init = { ...options, headers, method: body ? "POST" : "GET", body };
  const response = await fetch(api + path, init);
  if (response.status === 401) {
    show("login");
    throw new Refused(response.headers.has("www-authenticate") ? "log in with a valid key" : await response.text());
  }
  return response;
}

async function read(path) {
  const response = await request(path);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

function notice(text) {
  byId("notice").textContent = visible(text ?? "");
  byId("notice").hidden = !text;
}

function show(view) {
  for (const id of ["login", "list", "run"]) byId(id).hidden = id !== view;
}

// The list

const filter = { status: "", agent: "", text: "" };
const statuses = ["waiting", "running", "failed", "unreadable", "interrupted", "expired", "cancelled", "done"];
const rows = new Map();

async function refreshList() {
  const list = await read(`?${new URLSearchParams(filter)}`);
  if (opened()) return;
  show("list");
  const { waiting = 0 } = list.counts;
  document.title = waiting ? `(${waiting}) Runs` : "Runs";
  const choices = ["", ...statuses.filter((status) => list.counts[status] || filter.status === status)];
  byId("filters").replaceChildren(...choices.map((status) => el("button", {
    "aria-pressed": String(filter.status === status),
    onclick: () => { filter.status = status; tick(); },
  }, status ? `${status} ${list.counts[status] ?? 0}` : "all")));
  const agent = byId("agent");
  if (list.agents.length > 1 && agent.children.length === 0) {
    agent.hidden = false;
    agent.append(el("option", { value: "" }, "All agents"), ...list.agents.map((name) => el("option", {}, name)));
  }
  const focused = document.activeElement?.dataset?.run;
  byId("runs").replaceChildren(...list.runs.map((run) => row(run, list.now)));
  if (focused) document.querySelector(`[data-run="${CSS.escape(focused)}"]`)?.focus();
  byId("empty").hidden = list.runs.length > 0 && !list.is_reading;
  byId("empty").textContent = list.is_reading ? "Reading the stored runs…" : "No runs.";
}

/** Tokens and cost, such as "1,204 tokens · 0.012 USD". */
function usageOf(usage) {
  const digits = { minimumFractionDigits: 2, maximumFractionDigits: 6 };
  const cost = usage?.cost && `${(usage.cost.micros / 1e6).toLocaleString(undefined, digits)} ${usage.cost.currency}`;
  return [usage?.total_tokens ? `${usage.total_tokens.toLocaleString()} tokens` : null, cost].filter(Boolean).join(" · ");
}

const factsOf = (run) => [run.agent, ...(run.user ? [run.user] : []), `turn ${run.turns}`, usageOf(run.usage),
  run.failed_calls ? `${run.failed_calls} failed call${run.failed_calls === 1 ? "" : "s"}` : null];

function row(run, now) {
  const details = run.summary ?? (run.error ? [run.error] : []);
  const facts = [...factsOf(run), run.updated_at ? age(now - run.updated_at) : null];
  return el("li", {}, el("a", { href: `#run=${encodeURIComponent(run.id)}`, "data-run": run.id },
    el("span", { className: `status ${run.status}` }, run.status),
    el("span", { className: "one" }, visible(run.question || run.id)),
    el("span", { className: "side" }, facts.filter(Boolean).join(" · ")),
    ...details.map((text) => el("span", { className: "one detail muted" }, ...isolated(text)))));
}

// One run

const opened = () => {
  const given = /^#run=(.+)$/.exec(location.hash);
  return given && decode(given[1]);
};
let watching = null;

async function refreshRun(id) {
  const run = await read(`/${encodeURIComponent(id)}`);
  if (opened() !== id) return;
  show("run");
  document.title = `${run.open.length ? "⏸ " : ""}${visible(run.question || run.id).slice(0, 60)}`;
  byId("title").textContent = visible(run.question || run.id);
  const since = run.updated_at ? `${run.status === "waiting" ? "waiting" : "changed"} ${age(run.now - run.updated_at)}` : null;
  const facts = [...factsOf(run), since, run.id].filter(Boolean).join(" · ");
  byId("facts").replaceChildren(el("span", { className: `status ${run.status}` }, run.status), ` · ${visible(facts)}`);
  byId("verdicts").textContent = visible(run.verdicts.map(layerOf).join(" · "));
  byId("error").hidden = !run.error;
  byId("error").textContent = run.error ? visible(run.error) : "";
  const { administer } = run.rights;
  byId("cancel").hidden = !administer || !["waiting", "running", "failed", "interrupted", "expired"].includes(run.status);
  byId("resume").hidden = !administer || !["failed", "interrupted", "expired"].includes(run.status);
  byId("end").hidden = !administer || !["failed", "interrupted", "expired"].includes(run.status);
  byId("state").hidden = !administer;
  byId("say").hidden = !administer || !["waiting", "running"].includes(run.status);
  byId("run").classList.toggle("administers", administer);
  // A card that somebody fills in stays as it is.
  const cards = new Map([...byId("waits").children].map((card) => [card.dataset.wait, card]));
  for (const wait of run.open) {
    const card = cards.get(wait.id);
    if (card && (card.dataset.recorded !== "" || !wait.recorded)) cards.delete(wait.id);
    else if (card) { card.replaceWith(waitCard(id, wait, run)); cards.delete(wait.id); }
    else byId("waits").append(waitCard(id, wait, run));
  }
  for (const gone of cards.values()) gone.remove();
}

const describe = ({ kind, by, why }) =>
  `${kind.replaceAll("_", " ")}${by ? ` by ${by}` : ""}${why ? `: ${why}` : ""}`;

function waitCard(id, wait, run) {
  const recorded = wait.recorded && `${describe(wait.recorded)} · ${age(run.now - wait.recorded.at)} ago`;
  const { answer: question, approval, result } = wait.reason;
  const call = approval ?? result;
  const left = wait.deadline ? `expires in ${age(wait.deadline - run.now)}` : null;
  const card = el("section", { className: "card wait", "data-wait": wait.id, "data-recorded": recorded ?? "" },
    el("h2", {}, visible([...wait.agents, wait.tool].join(" › ")), " ",
      wait.is_at_most_once ? el("span", { className: "tag" }, "at most once") : null, " ",
      left ? el("span", { className: "tag" }, left) : null),
    wait.description ? el("p", { className: "muted" }, visible(wait.description)) : null,
    wait.why ? el("p", {}, visible(wait.why)) : null,
    question && run.is_of_other ? el("p", { className: "muted" }, `A question to ${visible(run.user)}. A page that it names is for them alone.`) : null,
    question ? el("p", { className: "prose" }, ...(run.is_of_other ? [visible(question.text)] : linked(question.text))) : null,
    question?.problem ? el("p", { className: "failure" }, visible(question.problem)) : null,
    call ? long(call.arguments, "json", isolated) : null);
  if (recorded) card.append(el("p", { className: wait.recorded.kind }, visible(recorded)));
  else if (result) card.append(el("p", { className: "muted" }, "The caller supplies the result."));
  else if (!question && !approval) card.append(el("p", { className: "muted" }, "It goes on by itself."));
  else if (run.rights.decide) card.append(decisionForm(id, wait, card));
  return card;
}

function decisionForm(id, wait, card) {
  const reason = el("input", { placeholder: "Reason, which the model reads", "aria-label": "Reason" });
  const form = el("div");
  const deny = (label) => el("button", {
    className: "danger", "data-key": "d", onclick: () => send(JSON.stringify({ deny: reason.value || null })),
  }, label);
  const { answer: question, approval } = wait.reason;
  if (question) {
    const editor = answerEditor(question);
    form.append(editor.element, el("div", { className: "row" },
      el("button", { className: "primary", "data-key": "a", onclick: () => {
        const answer = editor.text();
        if (answer !== null) send(`{"answer":${answer}}`);
      } }, "Answer"),
      deny("Decline"), reason));
  }
  const buttons = el("div", { className: "row" },
    el("button", { className: "primary", "data-key": "a", onclick: () => send('"approve"') }, "Approve"),
    el("button", { "data-key": "e", onclick: () => edit() }, "Edit…"),
    deny("Deny"));
  if (approval) form.append(buttons);
  if (approval) buttons.append(reason);

  /** Sends a decision as JSON text, in which numbers keep every digit. */
  async function send(decision) {
    for (const button of card.querySelectorAll("button")) button.disabled = true;
    try {
      const body = `{"wait":${JSON.stringify(wait.id)},"decision":${decision}}`;
      const response = await request(`/${encodeURIComponent(id)}/decisions`, body);
      if (response.status === 409 && response.headers.get("content-type") === "application/json") {
        const earlier = await response.json();
        notice(`Not recorded, because this was decided before: ${describe(earlier)}`);
      } else if (!response.ok) notice(`Not recorded: ${await response.text()}`);
      else notice();
    } catch (error) {
      notice(`Not recorded: ${error.message}`);
    }
    for (const button of card.querySelectorAll("button")) button.disabled = false;
    await refreshRun(id).catch(() => {});
  }

  function edit() {
    const editor = wait.fields ? fieldEditor(wait.fields) : textEditor(approval.arguments);
    form.replaceChildren(editor.element, el("div", { className: "row" },
      el("button", { className: "primary", onclick: () => {
        const text = editor.text();
        if (text !== null) send(`{"edit":${text}}`);
      } }, "Approve with these arguments"),
      el("button", { onclick: () => form.replaceChildren(buttons) }, "Back")));
    form.querySelector("input, textarea, select")?.focus();
  }
  return form;
}

function textEditor(text) {
  const area = el("textarea", { value: text, rows: 6 });
  return { element: area, text: () => (isJson(area.value) ? area.value : null) };
}

/** A form for the answer to a question, made from its schema. */
function answerEditor({ schema, choices = [], labels = [], default: suggested, is_secret }) {
  const raw = suggested === undefined ? "" : JSON.stringify(suggested);
  if (choices.length && !is_secret) {
    const values = choices.map((value) => JSON.stringify(value));
    const label = (json, at) => labels[at] ?? (typeof choices[at] === "string" ? choices[at] : json);
    const select = el("select", {}, ...values.map((json, at) => el("option", { value: json }, visible(label(json, at)))));
    if (values.includes(raw)) select.value = raw;
    return { element: el("div", { className: "row" }, select), text: () => select.value };
  }
  if (schema.properties) {
    const fields = Object.entries(schema.properties).map(([name, property]) => ({
      name, schema: property, is_required: [schema.required].flat().includes(name),
      text: suggested?.[name] === undefined ? null : JSON.stringify(suggested[name]),
    }));
    return fieldEditor(fields, is_secret);
  }
  const only = choices.length ? { ...schema, enum: choices } : schema;
  const field = { name: "answer", schema: { ...only, description: undefined }, is_required: true, text: raw || null };
  const editor = fieldEditor([field], is_secret);
  const input = editor.element.querySelector("input, textarea, select");
  return { element: el("div", { className: "row" }, input), text: () => {
    const json = input.json();
    if (json === "") { input.focus(); return null; }
    return isJson(json, is_secret) ? json : null;
  } };
}

function isJson(text, isSecret = false) {
  try { JSON.parse(text); return true; } catch (error) {
    // The message quotes the text.
    notice(isSecret ? "Invalid JSON" : `Invalid JSON: ${error.message}`);
    return false;
  }
}

/**
 * A form for the members of the arguments. Values that are not texts are edited as JSON, so they keep every digit. Each secret is a
 * password: a list would show which value is chosen.
 */
function fieldEditor(fields, isSecret = false) {
  const inputs = fields.map((field) => {
    const schema = field.schema ?? {};
    const raw = field.text ?? "";
    const value = raw && JSON.parse(raw);
    const isText = (raw && typeof value === "string") || (raw === "" && [schema.type].flat().includes("string"));
    let input;
    if (isSecret) {
      const values = Array.isArray(schema.enum) ? schema.enum.map((value) => JSON.stringify(value)) : null;
      const placeholder = values ? visible(values.join(", ")) : "";
      input = el("input", { type: "password", autocomplete: "off", placeholder, value: isText ? value : raw });
      const isWord = () => isText || values?.includes(JSON.stringify(input.value));
      input.json = () => (input.value !== "" && isWord() ? JSON.stringify(input.value) : input.value.trim());
    } else if (Array.isArray(schema.enum)) {
      const values = schema.enum.map((value) => JSON.stringify(value));
      if (!values.includes(raw)) values.unshift(raw);
      input = el("select", {}, ...values.map((value) => el("option", { value }, visible(value))));
      input.value = raw;
      input.json = () => input.value;
    } else if ([schema.type].flat().includes("boolean")) {
      const values = [...new Set([raw, ...(field.is_required ? [] : [""]), "true", "false"])];
      input = el("select", {}, ...values.map((value) => el("option", { value }, value)));
      input.json = () => input.value;
    } else if (isText) { // An optional text that stays empty is left out.
      input = value.length > 60 || value.includes("\n") ? el("textarea", { value }) : el("input", { value });
      input.json = () => (input.value === "" && raw === "" ? "" : JSON.stringify(input.value));
    } else {
      input = raw.length > 60 ? el("textarea", { value: raw }) : el("input", { value: raw });
      input.json = () => input.value.trim();
    }
    input.dataset.field = field.name;
    return input;
  });
  const element = el("div", { className: "fields" }, ...fields.flatMap((field, at) => [
    el("label", {}, visible(field.name), field.is_required ? null : el("small", {}, "optional")),
    el("div", {}, inputs[at], field.schema?.description ? el("small", {}, visible(field.schema.description)) : null)]));
  return {
    element,
    text() {
      const members = [];
      for (const [at, field] of fields.entries()) {
        const json = inputs[at].json();
        if (json === "") continue;
        if (!isJson(json, isSecret)) { inputs[at].focus(); return null; }
        members.push(`${JSON.stringify(field.name)}:${json}`);
      }
      return `{${members.join(",")}}`;
    },
  };
}

// The log of a run

const milliseconds = (micros) => `${(micros / 1000).toFixed(micros < 10_000 ? 1 : 0)} ms`;

const layerOf = ({ layer, kind, why }) => `${layer}: ${kind.replaceAll("_", " ")}${why ? ` (${why})` : ""}`;

/** The event of the agent inside. */
const innermost = (event) => (event.type === "agent" ? innermost(event.event) : event);

/** The text of the output of a tool. */
const textOf = (content) => (typeof content === "string" ? content
  : content.map((part) => part.text ?? part.json ?? `[${part.type} ${part.url ?? part.name ?? ""}]`).join(""));

/** The place of the entries of a run, or of an agent inside. */
class Log {
  constructor(element, timeline = null) {
    this.element = element;
    this.timeline = timeline;
    this.place = element;
    this.calls = new Map();
    this.announced = new Map();
    this.prose = null;
  }

  apply(event) {
    const { type } = event;
    if (type !== this.prose?.type) this.prose = null;
    switch (type) {
      case "question": this.element.append(el("div", { className: "prose question" }, visible(event.text))); break;
      case "turn_started":
        // A turn that starts again replaces what its request had brought.
        if (this.turn === event.turn) {
          this.place.remove();
          this.chip?.remove();
        }
        this.turn = event.turn;
        this.addChip();
        this.place = el("section", { className: "turn", "data-turn": event.turn }, el("h3", {}, `Turn ${event.turn}`,
          el("button", { className: "raw", onclick: () => showJson(`turns/${event.turn}`) }, "request")));
        this.announced.clear();
        this.element.append(this.place);
        break;
      case "text": case "reasoning": case "refusal": this.addProse(type, event.text); break;
      case "call_announced": this.announced.set(event.index, this.call(event.id || `#${event.index}`, event.name)); break;
      case "arguments": {
        const card = this.announced.get(event.index);
        if (card) card.raw.replaceChildren(...isolated((card.text = (card.text ?? "") + event.text).slice(0, maxChars)));
        break;
      }
      case "call_ready": this.ready(event); break;
      case "turn_finished": {
        // Deltas can be missing.
        const { reasoning, text, refusal } = event.response.message;
        for (const part of this.place.querySelectorAll(":scope > .prose")) part.remove();
        this.prose = null;
        for (const [type, whole] of Object.entries({ reasoning, text, refusal })) if (whole) this.addProse(type, whole);
        this.prose = null;
        for (const card of this.announced.values()) if (!card.ready) card.element.remove();
        this.place.querySelector("h3")?.append(` ${usageOf(event.response.usage)}`);
        break;
      }
      case "call_started":
        if (!this.calls.has(event.id)) this.ready(event);
        this.state(event.id, "running");
        break;
      case "call_progress": this.progress(event); break;
      case "call_retried": this.note(this.calls.get(event.call.id)?.element, `attempt failed: ${event.outcome.Err.message}`, "failed"); break;
      case "call_finished": this.finish(event); break;
      case "waiting":
        for (const { path, reason } of event.waits) this.state(path, "waiting", reason.answer ? "asks" : reason.result ? "waits for the caller" : "waiting");
        break;
      case "call_decided":
        this.state(event.call_id, event.kind, describe(event));
        this.calls.get(event.call_id)?.decisions.push(event);
        break;
      case "agent": this.agent(event); break;
      case "compacted": this.note(this.place, event.messages
        ? `compacted: a summary stands for ${event.messages} messages`
        : `compacted: ${event.outputs} outputs are hidden from the model`); break;
      case "handed_off": this.note(this.place, `handed off to ${event.agent}`); break;
      case "done":
        if (event.text && !this.place.querySelector(":scope > .prose.text")) this.addProse("text", event.text);
        this.note(this.element, `answered ${usageOf(event.usage)}`, "done"); break;
      case "failed": this.note(this.element, event.error, "failed"); break;
      case "cancelled": this.note(this.element, "cancelled", "cancelled"); break;
    }
  }

  /** Adds the turn to the timeline, where it leads to its place and has the time of its calls. */
  addChip() {
    if (!this.timeline) return;
    const number = this.turn;
    const show = () => this.element.querySelector(`[data-turn="${number}"]`)?.scrollIntoView({ block: "start" });
    this.chip = el("button", { onclick: show }, `Turn ${number}`);
    this.chip.micros = 0;
    this.timeline.append(this.chip);
  }

  addProse(type, text) {
    if (this.prose?.type !== type) {
      this.prose = { type, element: el("div", { className: `prose ${type}` }) };
      const call = this.place.querySelector(":scope > .call");
      if (call) call.before(this.prose.element);
      else this.place.append(this.prose.element);
    }
    this.prose.element.append(visible(text));
  }

  call(id, name) {
    const known = this.calls.get(id);
    if (known && !known.ready) return known;
    const status = el("span", { className: "status ready" });
    const raw = el("code", { className: "muted" });
    const element = el("details", { className: "card call" },
      el("summary", {}, el("strong", {}, visible(name)), " ", raw, " ", status));
    const card = { element, status, raw, name, ready: false, decisions: [] };
    this.calls.set(id, card);
    this.place.append(element);
    return card;
  }

  ready({ id, name, arguments: text, index }) {
    const announced = this.announced.get(index);
    const isUndo = id.startsWith("undo_") && index === undefined;
    const card = this.call(id, isUndo ? `undo: ${name}` : name);
    if (announced && announced !== card && !announced.ready) { announced.element.remove(); this.announced.delete(index); }
    card.ready = true;
    card.raw.replaceChildren(...isolated(text.slice(0, 200)), text.length > 200 ? "…" : "");
    if (text.length > 200) card.element.append(long(text, "json", isolated));
  }

  state(id, className, text = className) {
    const card = this.calls.get(id);
    if (!card) {
      // The id of a call inside an agent is a path.
      for (const [outer, { log }] of this.calls) {
        if (log && id.startsWith(`${outer}/`)) log.state(id.slice(outer.length + 1), className, text);
      }
      return;
    }
    card.status.className = `status ${className}`;
    card.status.textContent = visible(text.replaceAll("_", " "));
  }

  progress({ id, text, done, total }) {
    const count = done === null ? "" : ` ${done}${total === null ? "" : `/${total}`}`;
    this.state(id, "running", `${text}${count}` || "running");
  }

  finish(event) {
    const { call, asked, duration = 0, attempts = 1, repairs = [], outcome } = event;
    if (!this.calls.has(call.id)) this.ready(call);
    const card = this.calls.get(call.id);
    if (asked) {
      card.raw.replaceChildren(...isolated(call.arguments.slice(0, 200)));
      this.note(card.element, `the model's arguments: ${asked}`);
    }
    const status = outcome.Ok ? "succeeded" : outcome.Err.kind;
    const output = outcome.Ok ? textOf(outcome.Ok.content) : outcome.Err.message;
    const decisions = event.decisions ?? card.decisions;
    const facts = [status.replaceAll("_", " "), milliseconds(duration),
      attempts > 1 ? `${attempts} attempts` : null, event.origin?.replaceAll("_", " "), ...decisions.map(describe)];
    this.state(call.id, outcome.Ok ? "succeeded" : `failed ${status}`, facts.filter(Boolean).join(" · "));
    for (const verdict of event.verdicts ?? []) this.note(card.element, `layer ${layerOf(verdict)}`);
    for (const { argument, from, to } of repairs) this.note(card.element, `repaired ${argument ?? "arguments"}: ${from} → ${to}`);
    card.element.append(long(output, status));
    if (output.length <= 300 && !outcome.Ok) card.element.open = true;
    if (this.chip) {
      this.chip.micros += duration;
      this.chip.textContent = `Turn ${this.turn} · ${milliseconds(this.chip.micros)}`;
      if (!outcome.Ok) this.chip.className = "failed";
    }
    const first = output.split("\n", 1)[0].slice(0, 80);
    if (outcome.Ok && first) card.status.append(el("span", { className: "muted" }, ` → ${visible(first)}`));
  }

  agent({ agent, call_id: call, event }) {
    const card = this.calls.get(call) ?? this.call(call, agent);
    if (!card.log) {
      const element = el("div", { className: "agent" });
      card.element.append(element);
      card.element.open = true;
      card.log = new Log(element);
    }
    card.log.apply(event);
  }

  note(place, text, className = "muted") {
    (place ?? this.element).append(el("p", { className: `note ${className}` }, visible(text.slice(0, maxChars))));
  }
}

async function watch(id) {
  watching?.abort.abort();
  const current = (watching = { id, abort: new AbortController() });
  let log = new Log(byId("log"), byId("turns"));
  let [isLost, isGone] = [false, false];
  const reset = () => {
    for (const part of ["log", "turns"]) byId(part).replaceChildren();
    log = new Log(byId("log"), byId("turns"));
    isLost = false;
  };
  while (watching === current) {
    try {
      const response = await request(`/${encodeURIComponent(id)}/events`, null, { signal: current.abort.signal });
      if (!response.ok) throw new Error(await response.text());
      reset();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done || watching !== current) break;
        const frames = (rest + value).split("\n\n");
        rest = frames.pop();
        for (const frame of frames) {
          const data = frame.split("\n").find((line) => line.startsWith("data: "));
          if (!data) continue;
          const event = JSON.parse(data.slice(6));
          if (event.type === "reset") reset();
          else if (event.type === "gone") { isGone = true; log.note(byId("log"), "this run has ended in another process"); }
          else log.apply(event);
          if (["waiting", "call_decided", "done", "failed", "cancelled"].includes(innermost(event).type)) refreshRun(id).catch(() => {});
        }
      }
      if (isGone) return;
    } catch (error) {
      if (watching !== current || error instanceof Refused) return;
      if (!isLost) log.note(byId("log"), `the connection is lost: ${error.message}`, "failed");
      isLost = true;
    }
    await new Promise((resolve) => setTimeout(resolve, 1500));
  }
}

/** Returns whether the server has accepted the action. */
async function act(id, action, body = "{}") {
  let isDone = false;
  try {
    const response = await request(`/${encodeURIComponent(id)}/${action}`, body);
    isDone = response.ok;
    notice(isDone ? null : await response.text());
  } catch (error) {
    notice(error.message);
  }
  tick();
  return isDone;
}

byId("cancel").addEventListener("click", () => { if (confirm("Cancel this run?")) act(opened(), "cancel"); });
byId("resume").addEventListener("click", () => act(opened(), "resume"));
byId("end").addEventListener("click", () => { if (confirm("End this run? What its calls have done is kept.")) act(opened(), "end"); });
byId("say").addEventListener("submit", async (event) => {
  event.preventDefault();
  const input = byId("message");
  const text = input.value.trim();
  if (text && await act(opened(), "messages", JSON.stringify({ text }))) input.value = "";
});
byId("state").addEventListener("click", () => showJson("state"));

/** Shows the JSON at a path of the run, or hides it again. */
async function showJson(path) {
  const json = byId("json");
  json.hidden = !json.hidden && json.dataset.path === path;
  json.dataset.path = path;
  if (json.hidden) return;
  try { json.textContent = visible(JSON.stringify(await read(`/${encodeURIComponent(opened())}/${path}`), null, 2)); }
  catch (error) { json.textContent = visible(error.message); }
  json.scrollIntoView({ block: "nearest" });
}

byId("search").addEventListener("input", (event) => { filter.text = event.target.value; tick(); });
byId("agent").addEventListener("change", (event) => { filter.agent = event.target.value; tick(); });
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  key = byId("key").value;
  sessionStorage.setItem("tool-web-key", key);
  byId("key").value = "";
  open();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && opened()) { location.hash = ""; return; }
  if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j" || event.key === "k") {
    const links = [...document.querySelectorAll("#runs a")];
    const at = links.indexOf(document.activeElement) + (event.key === "j" ? 1 : -1);
    links[Math.min(Math.max(at, 0), links.length - 1)]?.focus();
  }
  // The key moves to the button; Enter presses it.
  if ("aed".includes(event.key)) document.querySelector(`#waits [data-key="${event.key}"]`)?.focus();
});

let timer = null;
async function tick() {
  clearTimeout(timer);
  const id = opened();
  try {
    await (id ? refreshRun(id) : refreshList());
    if (byId("notice").dataset.lost) { notice(); delete byId("notice").dataset.lost; }
  } catch (error) {
    notice(error.message);
    byId("notice").dataset.lost = "yes";
    if (id && !(error instanceof Refused)) show("run");
  }
  clearTimeout(timer);
  timer = setTimeout(tick, document.hidden ? 10_000 : 2_000);
}

function open() {
  takeKey();
  notice();
  byId("json").hidden = true;
  const id = opened();
  if (watching?.id !== id) {
    for (const part of ["waits", "turns", "log", "title", "facts"]) byId(part).replaceChildren();
    watching?.abort.abort();
    watching = null;
    if (id) watch(id);
  }
  tick();
}

window.addEventListener("hashchange", open);
document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
open();
