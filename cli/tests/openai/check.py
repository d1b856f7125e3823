"""The official OpenAI client against real agents and engines. The bare engine's answers come from tests/openai.rs."""

import json
import math
import os
import time
import urllib.request

import openai
from openai import OpenAI

PREFILL, DECODE = os.environ["PREFILL"], os.environ["DECODE"]
client = OpenAI(base_url=f"http://{DECODE}/v1", api_key="none", max_retries=0, timeout=120)
with open(os.environ["EXPECTED"]) as file:
    EXPECTED = json.load(file)
PROMPT, ANSWER = EXPECTED["prompt"], EXPECTED["answer"]
GREEDY = EXPECTED["cases"][0]
# Until what a client left behind must be gone, in seconds.
PATIENCE = 10
# In which the KV comes: with an anchor to draft on, narrow and wide, and whole at once.
NARROW, WIDE, WHOLE = ({"method": "lynx-exact", "anchor_bits": 3}, {"method": "lynx-exact", "anchor_bits": 8}, {"method": "bf16"})


def metric(name):
    """The sum of a metric of the decode agent."""
    with urllib.request.urlopen(f"http://{DECODE}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    names = name if "{" in name else (name + " ", name + "{")
    return sum(float(line.split()[-1]) for line in lines if line.startswith(names))


def forget(*addresses):
    """Has engines forget every prompt. Where the prefill engine still has it, the link alone decides when its KV is there."""
    for address in addresses or [DECODE]:
        request = urllib.request.Request(f"http://{address}/lynx/v1/prefix-cache/reset", method="POST", data=b"{}")
        urllib.request.urlopen(request, timeout=30).read()


def complete(way=GREEDY["way"], road=NARROW, **fields):
    lynx = {"ignore_eos": True} | road | fields.pop("lynx", {})
    request = {"model": "model", "prompt": PROMPT, "max_tokens": ANSWER} | way | fields
    return client.completions.create(**request, extra_body={"lynx": lynx})


def what_the_bare_engine_gives_comes_on_every_road():
    forget(DECODE, PREFILL)
    roads = [(case, road) for case in EXPECTED["cases"] for road in (NARROW, WHOLE)] + [(GREEDY, WIDE)]
    for case, road in roads:
        forget()
        choice = complete(case["way"], road, logprobs=5).choices[0]
        assert choice.text == case["text"], (road, case["way"], choice.text, case["text"])
        known = choice.logprobs
        assert known.token_logprobs == [one["chosen"]["logprob"] for one in case["logprobs"]], road
        assert "".join(known.tokens) == choice.text, known.tokens
        for token, number, top, expected in zip(known.tokens, known.token_logprobs, known.top_logprobs, case["logprobs"]):
            wanted = [one["logprob"] for one in expected["top"]]
            assert sorted(top.values(), reverse=True)[:5] == wanted, (top, wanted)
            assert top[token] == number, (token, top)
            assert sum(math.exp(p) for p in top.values()) < 1 + 1e-5, top
        for token, offset in zip(known.tokens, known.text_offset):
            assert choice.text[offset:].startswith(token), (token, offset)


def choices_are_what_their_seeds_give_alone():
    way = {"temperature": 1, "seed": 70}
    alone = [complete(way | {"seed": 70 + index}).choices[0].text for index in range(3)]
    assert len(set(alone)) > 1, alone
    forget()
    before = metric('lynx_transfers_total{outcome="complete"}')
    answer = complete(way, n=3)
    assert [choice.text for choice in answer.choices] == alone, (answer, alone)
    assert answer.usage.completion_tokens == 3 * ANSWER and answer.usage.prompt_tokens == len(PROMPT), answer.usage
    assert metric('lynx_transfers_total{outcome="complete"}') == before + 1, "one transfer serves all"
    forget()
    texts = ["", "", ""]
    for chunk in complete(way, n=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == alone, texts
    again = complete(way, WHOLE, n=3)
    # All whole blocks but the last token's.
    assert again.usage.prompt_tokens_details.cached_tokens >= len(PROMPT) // 64 * 64, again.usage


def stops_end_it_wherever_tokens_are_cut():
    text = GREEDY["text"]
    for at, length in [(5, 1), (9, 6), (14, 11), (23, 3), (30, 17)]:
        stop = text[at : at + length]
        expected = text[: text.index(stop)]
        if at in (9, 23):
            # So that it is met by drafts too.
            forget()
        choice = complete(stop=["never said", stop], logprobs=0).choices[0]
        assert (choice.text, choice.finish_reason) == (expected, "stop"), (stop, choice)
        said = "".join(choice.logprobs.tokens)
        assert said.startswith(expected), (said, expected)
        assert len("".join(choice.logprobs.tokens[:-1])) < max(len(expected), 1), choice.logprobs
        told = ""
        for chunk in complete(stop=stop, stream=True):
            told += chunk.choices[0].text
            assert expected.startswith(told), (stop, told)
        assert told == expected, (stop, told)


def drafts_are_for_those_who_ask():
    # Comes first: who has been told of many wrong or slow drafts makes none.
    drafted, road = 0, {"method": "lynx-exact", "anchor_bits": 5}
    for fields in [{}, {"n": 2}, {"stop": GREEDY["text"][9:15]}, {"logprobs": 2}, {"temperature": 1}]:
        texts = {}
        way = GREEDY["way"] | {key: value for key, value in fields.items() if key == "temperature"}
        rest = {key: value for key, value in fields.items() if key != "temperature"}
        forget()
        for chunk in complete(way, road, stream=True, **rest):
            assert not hasattr(chunk, "lynx"), chunk
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + choice.text
        forget()
        told, kept = {}, {}
        for chunk in complete(way, road, stream=True, lynx={"provisional": True}, **rest):
            for choice in chunk.choices:
                told[choice.index] = told.get(choice.index, "") + choice.text
            if not chunk.choices and chunk.lynx["event"] == "token":
                drafted += chunk.lynx["provisional"]
                if not chunk.lynx["provisional"]:
                    kept.setdefault(chunk.lynx.get("choice", 0), []).append(chunk.lynx["index"])
        assert told == texts, (fields, told, texts)
        assert all(indices == list(range(len(indices))) for indices in kept.values()), kept
    assert drafted > 0, "nothing was drafted"


def chats_tell_bytes():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello with an emoji."}]
    answer = client.chat.completions.create(
        model="model", messages=messages, max_completion_tokens=12, seed=3, logprobs=True, top_logprobs=20
    )
    choice = answer.choices[0]
    said = bytes(byte for token in choice.logprobs.content for byte in token.bytes or [])
    assert said.startswith(choice.message.content.encode()[:-4]), (said, choice.message.content)
    for token in choice.logprobs.content:
        assert len(token.top_logprobs) == 20
        total = sum(math.exp(top.logprob) for top in token.top_logprobs)
        assert 0 < total < 1 + 1e-5, total
        assert all(a.logprob >= b.logprob for a, b in zip(token.top_logprobs, token.top_logprobs[1:]))
    assert answer.system_fingerprint.startswith("fp_"), answer
    again = client.chat.completions.create(model="model", messages=messages, max_completion_tokens=12, seed=3)
    assert again.choices[0].message.content == choice.message.content


def what_the_model_can_not_take_is_refused():
    for fields, code in [({"prompt": [5] * 9000}, "context_length_exceeded"), ({"logit_bias": {"99999999": 1}}, "invalid_value")]:
        try:
            complete(**fields)
        except openai.BadRequestError as error:
            assert error.code == code, error
        else:
            raise AssertionError(f"{list(fields)} was answered")


def a_stream_that_is_closed_is_ended():
    before = metric('lynx_requests_total{outcome="aborted"}')
    stream = complete(max_tokens=500, stream=True)
    next(iter(stream))
    stream.close()
    begun = time.monotonic()
    while metric('lynx_requests_total{outcome="aborted"}') == before or metric("lynx_in_flight"):
        assert time.monotonic() - begun < PATIENCE, "it goes on"
    assert complete().choices[0].text == GREEDY["text"], "the next one is answered as ever"


for check in [
    drafts_are_for_those_who_ask,
    what_the_bare_engine_gives_comes_on_every_road,
    choices_are_what_their_seeds_give_alone,
    stops_end_it_wherever_tokens_are_cut,
    chats_tell_bytes,
    what_the_model_can_not_take_is_refused,
    a_stream_that_is_closed_is_ended,
]:
    begun = time.monotonic()
    check()
    print(f"ok: {check.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
