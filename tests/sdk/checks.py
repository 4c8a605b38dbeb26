"""The official Python SDK against the server. Each function is a check and fails with an exception."""

import asyncio
import json
import sys
import traceback

import openai
from openai import AsyncOpenAI, OpenAI
from openai.lib.responses_tool_runner import RegisteredFunction, ResponsesToolRunner
from pydantic import BaseModel

URL = sys.argv[1]
client = OpenAI(base_url=URL, api_key="sk-test", max_retries=0)

PLACE = {
    "type": "object",
    "properties": {"place": {"type": "string"}},
    "required": ["place"],
    "additionalProperties": False,
}


def chat_tool(name):
    return {"type": "function", "function": {"name": name, "parameters": PLACE, "strict": True}}


def tool(name):
    return {"type": "function", "name": name, "description": "Locates", "parameters": PLACE, "strict": True}


def user(text):
    return {"role": "user", "content": text}


class Weather(BaseModel):
    city: str
    celsius: int


def raises(kind, ask, **expected):
    try:
        ask()
    except kind as error:
        assert type(error) is kind, f"{type(error)} is not {kind}"
        for name, value in expected.items():
            assert getattr(error, name) == value, f"{name}: {getattr(error, name)!r}"
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def models():
    assert [model.id for model in client.models.list()] == ["agent", "limited", "puppet", "too-long"]
    assert client.models.retrieve("agent").object == "model"


def chat():
    raw = client.chat.completions.with_raw_response.create(model="puppet", messages=[user("Good morning!")])
    assert raw.headers["x-request-id"].startswith("req_")
    completion = raw.parse()
    assert completion.choices[0].message.content == "Good morning!"
    assert completion.choices[0].finish_reason == "stop"
    assert (completion.usage.prompt_tokens, completion.usage.total_tokens) == (10, 15)
    assert completion._request_id == raw.headers["x-request-id"]
    cut = client.chat.completions.create(model="puppet", messages=[user("cut It is")])
    assert cut.choices[0].finish_reason == "length"
    refused = client.chat.completions.create(model="puppet", messages=[user("refuse")])
    assert refused.choices[0].message.refusal == "I may not."


def chat_streamed():
    stream = client.chat.completions.create(
        model="puppet", messages=[user("Good morning!")], stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(text for text in texts if text) == "Good morning!" and len(chunks) > 10
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == 15
    with client.chat.completions.stream(model="puppet", messages=[user("Good morning!")]) as stream:
        kinds = {event.type for event in stream}
        assert {"chunk", "content.delta", "content.done"} <= kinds, kinds
        assert stream.get_final_completion().choices[0].message.content == "Good morning!"


def chat_tools():
    for names in (["locate"], ["locate", "find"]):
        messages = [user("call " + " ".join(names))]
        tools = [chat_tool(name) for name in names]
        whole = client.chat.completions.create(model="puppet", messages=messages, tools=tools)
        with client.chat.completions.stream(model="puppet", messages=messages, tools=tools) as stream:
            done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
            streamed = stream.get_final_completion()
        assert [event.name for event in done] == names
        for completion in (whole, streamed):
            assert completion.choices[0].finish_reason == "tool_calls"
            message = completion.choices[0].message
            assert [call.function.name for call in message.tool_calls] == names
            assert json.loads(message.tool_calls[0].function.arguments) == {"place": "Rome"}
            results = [{"role": "tool", "tool_call_id": call.id, "content": call.function.name} for call in message.tool_calls]
            again = client.chat.completions.create(
                model="puppet", messages=[*messages, message.to_dict(), *results], tools=tools
            )
            assert again.choices[0].message.content == "; ".join(names)


def chat_agent():
    """The server executes the agent's own tool."""
    messages = [user("call temperature")]
    whole = client.chat.completions.create(model="agent", messages=messages)
    assert whole.choices[0].message.content == "Let me see.22 degrees in Rome"
    assert whole.choices[0].message.tool_calls is None and whole.usage.total_tokens == 30
    with client.chat.completions.stream(model="agent", messages=messages) as stream:
        stream.until_done()
        assert stream.get_final_completion().choices[0].message.content == "Let me see.22 degrees in Rome"


def chat_mixed():
    """A tool of the agent and one of the caller in one turn."""
    messages = [user("call temperature locate")]
    tools = [chat_tool("locate")]
    whole = client.chat.completions.create(model="agent", messages=messages, tools=tools)
    with client.chat.completions.stream(model="agent", messages=messages, tools=tools) as stream:
        stream.until_done()
        streamed = stream.get_final_completion()
    for completion in (whole, streamed):
        message = completion.choices[0].message
        (call,) = message.tool_calls
        assert call.function.name == "locate" and message.content == "Let me see."
        result = {"role": "tool", "tool_call_id": call.id, "content": "here"}
        messages_now = [*messages, message.to_dict(), result]
        again = client.chat.completions.create(model="agent", messages=messages_now, tools=tools)
        assert again.choices[0].message.content == "22 degrees in Rome; here"


def chat_question():
    """A tool of the agent asks, and the caller answers the call of the function that it has declared."""
    tools = [{"type": "function", "function": {"name": "ask_user"}}]
    messages = [user("call book")]
    whole = client.chat.completions.create(model="agent", messages=messages, tools=tools)
    with client.chat.completions.stream(model="agent", messages=messages, tools=tools) as stream:
        stream.until_done()
        streamed = stream.get_final_completion()
    for completion in (whole, streamed):
        message = completion.choices[0].message
        (call,) = message.tool_calls
        asked = json.loads(call.function.arguments)
        assert (call.function.name, asked["question"], asked["choices"]) == ("ask_user", "Which row?", [1, 2])
        answer = lambda text: [*messages, message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": text}]
        create = lambda text: client.chat.completions.create(model="agent", messages=answer(text), tools=tools)
        raises(openai.BadRequestError, lambda: create("3"), code="invalid_answer")
        assert create("2").choices[0].message.content == "row 2 to Rome"
        raises(openai.ConflictError, lambda: create("1"), code="question_closed")


def chat_parse():
    messages = [user("How warm is it?")]
    parsed = client.chat.completions.parse(model="puppet", messages=messages, response_format=Weather)
    assert parsed.choices[0].message.parsed == Weather(city="Rome", celsius=22)
    with client.chat.completions.stream(model="puppet", messages=messages, response_format=Weather) as stream:
        stream.until_done()
        assert stream.get_final_completion().choices[0].message.parsed.celsius == 22
    strict = openai.pydantic_function_tool(Weather, name="locate")
    called = client.chat.completions.parse(model="puppet", messages=[user("call other")], tools=[strict])
    assert called.choices[0].message.tool_calls[0].function.name == "other"


def errors():
    ask = client.chat.completions.create
    hi = [user("Hi")]
    wrong = OpenAI(base_url=URL, api_key="sk-wrong", max_retries=0)
    error = raises(openai.AuthenticationError, lambda: wrong.models.list(), status_code=401, code="invalid_api_key")
    assert error.response.headers["www-authenticate"] == "Bearer" and error.request_id.startswith("req_")
    raises(openai.NotFoundError, lambda: ask(model="none", messages=hi), code="model_not_found", param="model")
    raises(openai.NotFoundError, lambda: client.responses.retrieve("resp_none"), code="response_not_found")
    raises(openai.BadRequestError, lambda: ask(model="puppet", messages=[]), param="messages")
    raises(openai.BadRequestError, lambda: ask(model="puppet", messages=hi, n=2), param="n")
    clash = [chat_tool("temperature")]
    raises(openai.BadRequestError, lambda: ask(model="agent", messages=hi, tools=clash), param="tools[0]")
    raises(openai.BadRequestError, lambda: ask(model="too-long", messages=hi), code="context_length_exceeded")
    raises(openai.RateLimitError, lambda: ask(model="limited", messages=hi), code="rate_limit_exceeded")
    error = raises(openai.InternalServerError, lambda: ask(model="puppet", messages=[user("fail")]), status_code=500)
    assert "secret" not in str(error)
    raises(openai.APIStatusError, lambda: ask(model="puppet", messages=[user("x" * (1 << 20))]), status_code=413)
    hasty = client.with_options(timeout=0.3)
    raises(openai.APITimeoutError, lambda: hasty.chat.completions.create(model="puppet", messages=[user("sleep")]))
    # An error in the middle of a stream.
    stream = ask(model="puppet", messages=[user("fail")], stream=True)
    error = raises(openai.APIError, lambda: list(stream), type="server_error")
    assert "secret" not in str(error)


def responses():
    response = client.responses.create(
        model="puppet", input="think It is warm.", instructions="Be brief.", metadata={"a": "b"}
    )
    assert response.output_text == "It is warm." and response.status == "completed"
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output[0].summary[0].text == "Hm, let me think."
    assert response.usage.total_tokens == 15 and response.usage.input_tokens_details.cached_tokens == 0
    assert response.metadata == {"a": "b"} and response.instructions == "Be brief."
    assert client.responses.retrieve(response.id) == response
    again = client.responses.create(model="puppet", input="count", previous_response_id=response.id)
    assert again.output_text == "3"
    client.responses.delete(response.id)
    raises(openai.NotFoundError, lambda: client.responses.retrieve(response.id))
    cut = client.responses.create(model="puppet", input="cut It is")
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens"
    refused = client.responses.create(model="puppet", input="refuse")
    assert refused.output[0].content[0].refusal == "I may not."
    raises(openai.BadRequestError, lambda: client.responses.create(model="puppet", input="Hi", background=True))


def responses_streamed():
    events = list(client.responses.create(model="puppet", input="think It is warm.", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    with client.responses.stream(model="puppet", input="think It is warm.") as stream:
        streamed = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert streamed == final.output_text == "It is warm."
    assert client.responses.retrieve(final.id).output_text == "It is warm."
    events = list(client.responses.create(model="puppet", input="fail", stream=True))
    assert events[-1].type == "response.failed" and events[-1].response.error.code == "server_error"
    refused = list(client.responses.create(model="puppet", input="refuse", stream=True))
    assert [event.refusal for event in refused if event.type == "response.refusal.done"] == ["I may not."]
    cut = list(client.responses.create(model="puppet", input="cut It is", stream=True))
    assert cut[-1].type == "response.incomplete"


def responses_tools():
    for model, prompt, agent_results in (("puppet", "call locate find", []), ("agent", "call temperature locate", ["22 degrees in Rome"])):
        tools = [tool("locate"), tool("find")]
        whole = client.responses.create(model=model, input=prompt, tools=tools)
        with client.responses.stream(model=model, input=prompt, tools=tools) as stream:
            kinds = [event.type for event in stream]
            streamed = stream.get_final_response()
        assert "response.function_call_arguments.delta" in kinds and "response.function_call_arguments.done" in kinds
        for response in (whole, streamed):
            calls = [item for item in response.output if item.type == "function_call"]
            assert [call.name for call in calls] == [name for name in prompt.split()[1:] if name != "temperature"]
            outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": call.name} for call in calls]
            expected = "; ".join([*agent_results, *(call.name for call in calls)])
            by_id = client.responses.create(model=model, input=outputs, tools=tools, previous_response_id=response.id)
            assert by_id.output_text == expected, by_id.output_text
            history = [user(prompt), *(item.to_dict() for item in response.output), *outputs]
            by_history = client.responses.create(model=model, input=history, tools=tools, store=False)
            assert by_history.output_text == expected, by_history.output_text


def responses_question():
    whole = client.responses.create(model="agent", input="call book")
    with client.responses.stream(model="agent", input="call book") as stream:
        assert "response.function_call_arguments.done" in [event.type for event in stream]
        streamed = stream.get_final_response()
    for response in (whole, streamed):
        (call,) = [item for item in response.output if item.type == "function_call"]
        asked = json.loads(call.arguments)
        assert (call.name, asked["question"], asked["schema"]["type"]) == ("ask_user", "Which row?", "integer")
        output = [{"type": "function_call_output", "call_id": call.call_id, "output": "1"}]
        answered = client.responses.create(model="agent", input=output, previous_response_id=response.id)
        assert answered.output_text == "row 1 to Rome", answered.output_text
        after = client.responses.create(model="agent", input="count", previous_response_id=answered.id)
        # The model does not see the question: the user, the answer, and the user again.
        assert after.output_text == "3", after.output_text


def responses_parse():
    parsed = client.responses.parse(model="puppet", input="How warm is it?", text_format=Weather)
    assert parsed.output_parsed == Weather(city="Rome", celsius=22)
    with client.responses.stream(model="puppet", input="How warm is it?", text_format=Weather) as stream:
        assert stream.get_final_response().output_parsed.city == "Rome"


def responses_runner():
    """The tool loop of the SDK, which validates each response before it calls anything."""
    for model, prompt, expected in (
        ("puppet", "call locate locate", "here: Rome; here: Paris"),
        ("agent", "call temperature locate", "22 degrees in Rome; here: Paris"),
    ):
        for streamed in (False, True):
            locate = RegisteredFunction(tool("locate"), lambda arguments: f"here: {arguments['place']}")
            runner = ResponsesToolRunner(functions=[locate])
            params = {"model": model, "input": [user(prompt)]}
            response = runner.run(client, params, stream=streamed)
            assert response.output_text == expected, response.output_text


def asynchronous():
    async def ask():
        async with AsyncOpenAI(base_url=URL, api_key="sk-test", max_retries=0) as client:
            requests = [client.chat.completions.create(model="agent", messages=[user(f"Hi {n}")]) for n in range(20)]
            answers = [completion.choices[0].message.content for completion in await asyncio.gather(*requests)]
            assert answers == [f"Hi {n}" for n in range(20)]
            async with client.responses.stream(model="agent", input="call temperature") as stream:
                assert [event.type async for event in stream][-1] == "response.completed"
                assert (await stream.get_final_response()).output_text == "Let me see.22 degrees in Rome"
            # A caller that disconnects does not affect the server.
            stream = await client.chat.completions.create(model="puppet", messages=[user("x" * 9999)], stream=True)
            async for _ in stream:
                break
            await stream.close()
            assert (await client.responses.create(model="puppet", input="Hi")).output_text == "Hi"

    asyncio.run(ask())


CHECKS = [
    models,
    chat,
    chat_streamed,
    chat_tools,
    chat_agent,
    chat_mixed,
    chat_question,
    chat_parse,
    errors,
    responses,
    responses_streamed,
    responses_tools,
    responses_question,
    responses_parse,
    responses_runner,
    asynchronous,
]

failed = 0
for check in CHECKS:
    try:
        check()
        print(f"ok      {check.__name__}")
    except Exception:
        failed += 1
        print(f"FAILED  {check.__name__}")
        traceback.print_exc(file=sys.stdout)
print(f"the Python SDK {openai.__version__}: {len(CHECKS) - failed} of {len(CHECKS)} checks passed")
sys.exit(failed > 0)
