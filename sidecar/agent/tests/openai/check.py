"""What the official OpenAI client makes of Lynx's endpoint. The server is tests/openai.rs, which answers three words."""

import os

import openai
from openai import OpenAI

client = OpenAI(base_url=os.environ["BASE_URL"], api_key="none", max_retries=0, timeout=30)
HELLO = [{"role": "user", "content": "Hello"}]


def refused(kind, **fields):
    """The error that a request gives."""
    request = {"model": "tiny", "messages": HELLO} | fields
    try:
        client.chat.completions.create(**request)
    except kind as error:
        return error
    raise AssertionError(f"{fields} was answered")


def models():
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "lynx"


def chat():
    answer = client.chat.completions.create(
        model="tiny", messages=HELLO, temperature=0, seed=7, stop=["."], user="somebody"
    )
    choice = answer.choices[0]
    assert choice.message.content == "one two three", choice
    assert choice.message.role == "assistant" and choice.finish_reason == "stop", choice
    assert answer.usage.prompt_tokens == 4 and answer.usage.completion_tokens == 3, answer.usage
    assert answer.id.startswith("chatcmpl-") and answer.created > 1_700_000_000, answer


def chat_in_parts():
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}],
        max_completion_tokens=2,
    )
    assert answer.choices[0].message.content == "one two", answer
    assert answer.choices[0].finish_reason == "length", answer


def chat_as_a_stream():
    stream = client.chat.completions.create(
        model="tiny", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "one two three", text
    assert chunks[0].choices[0].delta.role == "assistant", chunks[0]
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage.total_tokens == 7, chunks[-1]
    assert len({chunk.id for chunk in chunks}) == 1


def completions():
    for prompt in ["Once", ["Once"], [1, 2, 3], [[1, 2, 3]]]:
        answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=3)
        assert answer.choices[0].text == "one two three", answer
    stream = client.completions.create(model="tiny", prompt="Once", max_tokens=1, stream=True)
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "one", chunks
    assert chunks[-1].choices[0].finish_reason == "length", chunks


def choices():
    answer = client.chat.completions.create(model="tiny", messages=HELLO, n=3, max_tokens=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2], answer
    assert {choice.message.content for choice in answer.choices} == {"one two"}, answer
    assert answer.usage.prompt_tokens == 4 and answer.usage.completion_tokens == 6, answer.usage
    assert answer.usage.prompt_tokens_details.cached_tokens == 3, answer.usage
    assert answer.system_fingerprint == "fp_5a5a5a5a5a5a", answer
    texts = {}
    for chunk in client.completions.create(model="tiny", prompt=["a", "b"], n=2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    assert texts == dict.fromkeys(range(4), "one two three"), texts


def log_probabilities():
    answer = client.chat.completions.create(model="tiny", messages=HELLO, logprobs=True, top_logprobs=2)
    content = answer.choices[0].logprobs.content
    assert [token.token for token in content] == ["one", " two", " three"], content
    assert bytes(content[1].bytes) == b" two" and content[1].logprob == -0.5, content
    assert content[0].top_logprobs[1].bytes == [0xF0, 0x9F], content
    stream = client.chat.completions.create(model="tiny", messages=HELLO, logprobs=True, stream=True)
    tokens = [t for c in stream if c.choices and c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert [token.token for token in tokens] == ["one", " two", " three"] and not tokens[0].top_logprobs, tokens
    known = client.completions.create(model="tiny", prompt="Once", logprobs=2).choices[0].logprobs
    assert known.tokens == ["one", " two", " three"] and known.text_offset == [0, 3, 7], known
    assert known.token_logprobs == [-0.5] * 3, known
    assert known.top_logprobs[1] == {" two": -0.5, "bytes:\\xf0\\x9f": -1.5}, known


def drafts_are_not_for_plain_clients():
    for fields in [{}, {"temperature": 1.5}, {"n": 2}, {"stop": ["x"]}, {"logprobs": True, "top_logprobs": 1}]:
        texts = {}
        for chunk in client.chat.completions.create(model="tiny", messages=HELLO, stream=True, **fields):
            assert not hasattr(chunk, "lynx"), chunk
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
        assert texts == dict.fromkeys(texts, "one two three"), texts


def lynx_events():
    stream = client.chat.completions.create(
        model="tiny", messages=HELLO, stream=True, extra_body={"lynx": {"provisional": True, "method": "lynx-int8"}}
    )
    events = [chunk.lynx for chunk in stream if not chunk.choices]
    drafted = [event["text"] for event in events if event["event"] == "token" and event["provisional"]]
    assert drafted == ["one", " too"], events
    assert [event["from_index"] for event in events if event["event"] == "retracted"] == [1], events


def the_trace_goes_on():
    trace = "0af7651916cd43dd8448eb211c80319c"
    raw = client.chat.completions.with_raw_response.create(
        model="tiny", messages=HELLO, extra_headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    )
    assert trace in raw.headers["traceparent"], raw.headers


def errors():
    error = refused(openai.NotFoundError, model="huge")
    assert error.code == "model_not_found" and error.param == "model", error
    error = refused(openai.BadRequestError, n=200)
    assert error.param == "n" and error.type == "invalid_request_error", error
    error = refused(openai.BadRequestError, extra_body={"temprature": 0})
    assert error.code == "unknown_parameter" and error.param == "temprature", error
    error = refused(openai.BadRequestError, messages=[{"role": "user", "content": "long"}])
    assert error.code == "context_length_exceeded" and error.param == "messages", error
    error = refused(openai.BadRequestError, tools=[{"type": "function", "function": {"name": "f"}}])
    assert error.code == "unsupported_parameter" and error.param == "tools", error
    error = refused(openai.BadRequestError, temperature=3)
    assert error.param == "temperature", error
    error = refused(openai.InternalServerError, messages=[{"role": "user", "content": "break"}])
    assert error.status_code == 500 and "it broke" in error.message, error
    error = refused(openai.InternalServerError, messages=[{"role": "user", "content": "unavailable"}])
    assert error.status_code == 503 and error.response.headers["retry-after"] == "1", error


def a_failure_within_a_stream():
    stream = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "break later"}], stream=True
    )
    try:
        list(stream)
    except openai.APIError as error:
        assert "it broke" in error.message, error
    else:
        raise AssertionError("the stream ended as if it were whole")


def going_away():
    stream = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "wait"}], stream=True
    )
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            break
    stream.close()


for check in [
    models,
    chat,
    chat_in_parts,
    chat_as_a_stream,
    completions,
    choices,
    log_probabilities,
    drafts_are_not_for_plain_clients,
    lynx_events,
    the_trace_goes_on,
    errors,
    a_failure_within_a_stream,
    going_away,
]:
    check()
    print(f"ok: {check.__name__}")
