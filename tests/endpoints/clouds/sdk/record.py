"""Records what the official clients of clouds send, against a server on this machine: record.py prints JSON."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anthropic
import openai
from openai.providers.bedrock import bedrock
from openai.providers.vertex import vertex

TOKEN = "a-token-of-a-cloud"
HEADERS = ["anthropic-version", "anthropic-workspace-id", "api-key", "authorization", "x-api-key"]
MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
REPLY = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn", "stop_sequence": None,
    "content": [{"type": "text", "text": "Hi."}], "usage": {"input_tokens": 1, "output_tokens": 1},
}
EVENTS = [
    {"type": "message_start", "message": {**REPLY, "content": [], "stop_reason": None}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]
COMPLETION = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
}
recorded = {}
name = None


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {header: self.headers[header] for header in HEADERS if self.headers[header] is not None}
        recorded[name] = {"path": self.path, "headers": headers, "body": body}
        if body.get("stream"):
            text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in EVENTS)
            kind = "text/event-stream"
        else:
            reply = {"input_tokens": 1} if "count" in self.path else COMPLETION if "completions" in self.path else REPLY
            text, kind = json.dumps(reply), "application/json"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
origin = f"http://127.0.0.1:{server.server_port}"


def ask_claude(cloud, client, model, counts=True):
    """Asks awaited, streamed and for the number of tokens, where the cloud can."""
    global name
    name = f"{cloud} reply"
    client.messages.create(model=model, max_tokens=9, messages=MESSAGES)
    name = f"{cloud} stream"
    for _ in client.messages.create(model=model, max_tokens=9, messages=MESSAGES, stream=True):
        pass
    if counts:
        name = f"{cloud} count"
        client.messages.count_tokens(model=model, messages=MESSAGES)


claude = anthropic.AnthropicVertex(region="eu", project_id="p", access_token=TOKEN, base_url=f"{origin}/v1", max_retries=0)
ask_claude("vertex", claude, "claude-sonnet-4@20250514;x")
foundry = anthropic.AnthropicFoundry(azure_ad_token_provider=lambda: TOKEN, base_url=f"{origin}/anthropic", max_retries=0)
ask_claude("foundry", foundry, "m")
# The client for Bedrock's runtime uses `InvokeModel`. The Messages API there takes the token that the plain client sends.
runtime = anthropic.Anthropic(auth_token=TOKEN, base_url=f"{origin}/anthropic", max_retries=0)
ask_claude("bedrock", runtime, "m", counts=False)
mantle = anthropic.AnthropicBedrockMantle(
    api_key=TOKEN, aws_region="eu-west-1", base_url=f"{origin}/anthropic", max_retries=0
)
ask_claude("bedrock-mantle", mantle, "m")
aws = anthropic.AnthropicAWS(
    api_key=TOKEN, aws_region="eu-west-1", workspace_id="wrkspc_1", base_url=origin, max_retries=0
)
ask_claude("aws", aws, "m")

chat = [{"role": "user", "content": "Hello"}]
name = "azure"
azure = openai.OpenAI(api_key=lambda: TOKEN, base_url=f"{origin}/openai/v1", max_retries=0)
azure.chat.completions.create(model="m", messages=chat)
name = "bedrock"
runtime = openai.BedrockOpenAI(
    bedrock_token_provider=lambda: TOKEN, aws_region="eu-west-1", base_url=f"{origin}/openai/v1", max_retries=0
)
runtime.chat.completions.create(model="m", messages=chat)
name = "bedrock-mantle"
provider = bedrock(endpoint="mantle", region="eu-west-1", base_url=f"{origin}/openai/v1", token_provider=lambda: TOKEN)
mantle = openai.OpenAI(provider=provider, max_retries=0)
mantle.chat.completions.create(model="m", messages=chat)
# Google documents the plain client for the models behind `endpoints/openapi`.
name = "vertex"
location = f"{origin}/v1/projects/p/locations/eu"
gemini = openai.OpenAI(api_key=lambda: TOKEN, base_url=f"{location}/endpoints/openapi", max_retries=0)
gemini.chat.completions.create(model="m", messages=chat)
name = "vertex responses"
provider = vertex(base_url=f"{location}/publishers/openai/v1", token_provider=lambda: TOKEN)
items = [{"type": "message", **message} for message in chat]
openai.OpenAI(provider=provider, max_retries=0).responses.create(model="m", input=items, store=False)

print(json.dumps(recorded, indent=1, sort_keys=True))
