"""What must be so of two vLLMs with Lynx between them. Each scenario returns what it found, in a line, or raises Unmet."""

from __future__ import annotations

import http.client
import json
import math
import statistics
import threading
from collections.abc import Callable
from pathlib import Path

from asking import Answer, ask, choices, tokens_of
from nodes import AGENT, ENGINE, Unmet, until
from servers import MODEL, START_S, Nodes

ROOT = Path(__file__).resolve().parents[2]
AGENT_URL = "http://127.0.0.1:8090"
TOKENS = 32
# How far apart the likeliest two logits of one place may be for their order to depend on the number of rows that are
# computed at once, in units of the last place of BF16, which vLLM's logits are.
TIE_ULPS = 2
# How far a difference of two logits may be from what it is elsewhere: each of the four is rounded, and a step further away by other rows.
MOST_APART_ULPS = 8
LENGTHS = (40, 65, 100, 128, 129, 150, 200, 256, 257, 300, 333, 400, 450, 500, 513, 600, 640, 700, 800, 900, 1000, 1100, 1200, 1500)
# How many characters further each question begins.
START = 150
# How many questions the prefill node still has after the last one, of whose tokens vLLM keeps 10,240.
AGAIN = 4


class World:
    """Nodes, questions, and what a plain vLLM answers to them."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.plain = nodes.plain
        self.decode, self.prefill = nodes.decode.vllm, nodes.prefill.vllm
        self.prompts = prompts(self.plain.url)
        self.references: dict[int, Answer] = {}

    def reference(self, number: int) -> Answer:
        """What a plain vLLM answers to this question, with the likeliest two logits of each place."""
        if number not in self.references:
            answer = ask(self.plain.url, self.prompts[number], TOKENS, logprobs=2)
            if answer.error:
                raise Unmet(f"a plain vLLM doesn't answer question {number}: {answer.error}")
            self.references[number] = answer
        return self.references[number]

    def ties(self, number: int, answer: Answer) -> str:
        """Compares an answer with a plain vLLM's: nothing where they are equal, what differs where it is a tie. Raises Unmet."""
        if answer.error:
            raise Unmet(f"question {number} is not answered: {answer.error}")
        wanted = self.reference(number)
        pairs = zip(wanted.tokens, answer.tokens, strict=False)
        place = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
        if place is None:
            if len(wanted.tokens) == len(answer.tokens) and wanted.finish == answer.finish:
                return ""
            raise Unmet(f"question {number} has {len(answer.tokens)} tokens instead of {len(wanted.tokens)}")
        first, second = wanted.logits[place][:2]
        ulps = (first - second) / ulp(first)
        said = f"question {number} differs at token {place}, where two logits are {ulps:g} ulp apart"
        if ulps > TIE_ULPS:
            raise Unmet(said)
        return said

    def same(self, answers: dict[int, Answer]) -> str:
        """Compares many; what to say of them. Raises Unmet."""
        ties = [said for number, answer in answers.items() if (said := self.ties(number, answer))]
        return "; ".join([f"{len(answers) - len(ties)} of {len(answers)} answers are a plain vLLM's", *ties])

    def verified(self) -> list[tuple[int, ...]]:
        """Of each verification: the prompt's tokens, drafted ones, kept ones, rows, vLLM's blocks."""
        pattern = r"lynx verified \w+ of (\d+) tokens: (\d+) drafted, (\d+) kept, (\d+) rows in one forward pass, (\d+) blocks"
        return [tuple(map(int, found)) for found in self.decode.said(pattern)]


Scenario = Callable[[World], str]


def prompts(url: str) -> list[list[int]]:
    """Questions of many lengths, of a text that never changes: whatever is written elsewhere, these are the same."""
    text = (ROOT / "LICENSE").read_text()
    head, tail = "<|im_start|>user\nWhat is this about?\n", "<|im_end|>\n<|im_start|>assistant\n"
    end = tokens_of(url, tail)
    made = []
    for number, length in enumerate(LENGTHS):
        body = tokens_of(url, head + text[START * number :])
        made.append(body[: length - len(end)] + end)
        if len(made[-1]) != length:
            raise Unmet(f"the text is too short for a question of {length} tokens")
    return made


def ulp(value: float) -> float:
    """A unit in the last place of a number in BF16, which has eight bits of it."""
    return 2.0 ** (math.floor(math.log2(abs(value))) - 7)


def one_by_one(world: World) -> str:
    """Questions, one after another. Where a prompt takes as long to compute as to send, nothing is left to draft for: the last ones are asked
    again, which the prefill node has computed by then."""
    before = len(world.verified())
    said = world.same({n: ask(AGENT_URL, prompt, TOKENS) for n, prompt in enumerate(world.prompts)})
    if not any(kept for _, _, kept, _, _ in world.verified()[before:]):
        again = range(len(world.prompts) - AGAIN, len(world.prompts))
        said += "; again, " + world.same({n: ask(AGENT_URL, world.prompts[n], TOKENS) for n in again})
    verified = world.verified()[before:]
    drafted, kept = (sum(each[field] for each in verified) for field in (1, 2))
    if not kept:
        raise Unmet(f"{len(verified)} drafts were verified, and nothing of them was right")
    return f"{said}; {len(verified)} drafts of {drafted} tokens, {kept} right"


def kv_is_the_same(world: World) -> str:
    """KV that is loaded has the bits of that which was saved."""
    saved = set(world.prefill.said(r"lynx saved (\w+) from .* ms: (\w{32})\b"))
    loaded = loads(world)
    for name, mark in loaded:
        if (name, mark) not in saved:
            made = [other for which, other in saved if which == name]
            raise Unmet(f"the KV of prompt {name} is {mark} where it is used, and {made} where it was made")
    if not loaded:
        raise Unmet("no KV was loaded")
    return f"{len(loaded)} prompts' KV, bit for bit"


def a_verification_is_one_forward(world: World) -> str:
    """One forward pass verifies, with no block more than the tokens take."""
    block = 128
    for tokens, drafted, _, rows, blocks in world.verified():
        if rows != drafted + 2:
            raise Unmet(f"a draft of {drafted} tokens was verified with {rows} rows in one forward pass")
        if blocks > math.ceil((tokens + drafted) / block):
            raise Unmet(f"{tokens} tokens and a draft of {drafted} have {blocks} blocks of {block}")
    return f"{len(world.verified())} verifications: 1 forward pass each, 0 blocks more"


def streaming(world: World) -> str:
    """Streams say what whole answers say."""
    numbers = [3, 9, 17]
    answers = {n: ask(AGENT_URL, world.prompts[n], TOKENS, stream=True) for n in numbers}
    if any(answer.pieces < 4 for answer in answers.values()):
        raise Unmet(f"streams came in {[answer.pieces for answer in answers.values()]} pieces")
    return world.same(answers)


def many_at_once(world: World) -> str:
    """Requests beside each other, beside plain ones, and with two choices."""
    for number in range(16):
        world.reference(number)
    answers: dict[int, Answer] = {}
    twice: list[Answer] = []

    def through(number: int) -> None:
        answers[number] = ask(AGENT_URL, world.prompts[number], TOKENS)

    def past(number: int) -> None:
        answers[number] = ask(world.decode.url, world.prompts[number], TOKENS)

    def two() -> None:
        # vLLM gives one choice only where it always takes the likeliest token.
        twice.extend(choices(AGENT_URL, world.prompts[14], TOKENS, n=2, temperature=0.8, ignore_eos=True))

    brought = len(loads(world))
    run = [(through, n) for n in (2, 5, 8, 10, 12)] + [(past, n) for n in (1, 7)]
    threads = [threading.Thread(target=each, args=(n,)) for each, n in run] + [threading.Thread(target=two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = world.same(answers)
    if any(answer.error or len(answer.tokens) != TOKENS for answer in twice):
        raise Unmet(f"two choices of {TOKENS} tokens are {twice}")
    until("nothing is in flight any more", world.nodes.is_quiet)
    # Five questions, and the one with two choices once.
    if len(loads(world)) - brought != 6:
        raise Unmet(f"KV was loaded {len(loads(world)) - brought} times for six requests, one of them for two choices")
    return said


def log_probabilities(world: World) -> str:
    """Log probabilities come with every token, and are a plain vLLM's but for the rounding of its logits."""
    answers, most = {}, 0.0
    for number in (18, 21, 23):
        answer = answers[number] = ask(AGENT_URL, world.prompts[number], TOKENS, logprobs=2)
        wanted = world.reference(number)
        if len(answer.logits) != len(answer.tokens):
            raise Unmet(f"{len(answer.tokens)} tokens of question {number} have {len(answer.logits)} log probabilities")
        for place, (ours, plain) in enumerate(zip(answer.logits, wanted.logits, strict=False)):
            if answer.tokens[:place] != wanted.tokens[:place]:
                break
            # A plain vLLM's are logits: differences of two are comparable.
            apart = abs((ours[0] - ours[1]) - (plain[0] - plain[1])) / ulp(plain[0])
            most = max(most, apart)
            if apart > MOST_APART_ULPS:
                raise Unmet(f"log probabilities of question {number} at token {place} are {apart:.1f} ulp apart")
    return f"{world.same(answers)}; log probabilities at most {most:.1f} ulp apart"


def penalised(world: World) -> str:
    """Penalties, forbidden and allowed tokens mean in a draft what they mean anywhere. Where two tokens tie can't be told here, as
    vLLM tells logits before penalties: so not all answers need be equal."""
    numbers, equal, before = (17, 19, 22), 0, len(world.verified())
    allowed = sorted({token for number in numbers for token in world.reference(number).tokens} | set(range(100, 400)))
    kinds: tuple[dict[str, object], ...] = (
        {"presence_penalty": 0.7, "frequency_penalty": 0.4},
        {"repetition_penalty": 1.3, "min_tokens": 12},
        {"allowed_token_ids": allowed, "frequency_penalty": 1.0},
    )
    for number, kind in zip(numbers, kinds, strict=True):
        plain, ours = (ask(url, world.prompts[number], TOKENS, **kind) for url in (world.plain.url, AGENT_URL))
        if plain.error or ours.error:
            raise Unmet(f"{kind} is not answered: {plain.error}{ours.error}")
        equal += plain.tokens == ours.tokens
    drafted = len(world.verified()) - before
    if not equal:
        raise Unmet(f"none of {len(numbers)} penalised answers is a plain vLLM's")
    return f"{equal} of {len(numbers)} penalised answers are a plain vLLM's, {drafted} of them drafted"


def sampled(world: World) -> str:
    """A seed gives the same answer with and without Lynx; a limit of tokens and a stop within a draft hold."""
    seeded = {"temperature": 0.8, "seed": 5}
    plain, ours = (ask(url, world.prompts[4], TOKENS, **seeded) for url in (world.decode.url, AGENT_URL))
    if ours.error or not ours.tokens:
        raise Unmet(f"a seeded request is not answered: {ours.error}")
    wanted = world.reference(11).tokens
    for tokens in (1, 2, 5):
        answer = ask(AGENT_URL, world.prompts[11], tokens)
        if answer.tokens[:1] != wanted[:1] or len(answer.tokens) != tokens or answer.finish != "length":
            raise Unmet(f"{answer.tokens} came for {tokens} tokens, instead of {wanted[:tokens]}")
    stopped = ask(AGENT_URL, world.prompts[11], TOKENS, stop_token_ids=[wanted[3]])
    if stopped.finish != "stop" or len(stopped.tokens) > wanted.index(wanted[3]) + 1:
        raise Unmet(f"a stop at token {wanted[3]} gives {stopped.tokens} and {stopped.finish}")
    same = sum(one == other for one, other in zip(plain.tokens, ours.tokens, strict=False))
    return f"{same} of {len(plain.tokens)} seeded tokens alike; 1, 2 and 5 tokens; a stop"


def a_client_goes(world: World) -> str:
    """A client that goes away leaves nothing behind."""
    body = {"model": MODEL, "prompt": world.prompts[20], "max_tokens": 500, "stream": True, "ignore_eos": True}
    connection = http.client.HTTPConnection("127.0.0.1:8090", timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    connection.getresponse().readline()
    connection.close()
    took = until("nothing is in flight any more", world.nodes.is_quiet)
    return f"quiet after {took:.1f} s"


def an_agent_dies(world: World) -> str:
    """The prefill agent is killed while it sends: the answer is computed, and the next one comes from there again."""
    answers: dict[int, Answer] = {}
    thread = threading.Thread(target=lambda: answers.update({22: ask(AGENT_URL, world.prompts[22], TOKENS)}))
    node = world.nodes.prefill
    thread.start()
    until("the transfer has begun", lambda: node.metric("lynx_in_flight") > 0)
    node.kill(AGENT)
    thread.join()
    said = world.same(answers)
    node.start(AGENT)
    until("both nodes work again", world.nodes.are_ready)
    before = len(loads(world))
    said += "; then " + world.same({16: ask(AGENT_URL, world.prompts[16], TOKENS)})
    if len(loads(world)) == before:
        raise Unmet("nothing was loaded after the agent's restart")
    return said


def loads(world: World) -> list[tuple[str, ...]]:
    return world.decode.said(r"lynx loaded (\w+) from .* ms: (\w{32})\b")


def the_decode_agent_dies(world: World) -> str:
    """The decode agent is killed in the middle: its client is cut off, and its vLLM serves the next agent."""
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(ask(AGENT_URL, world.prompts[21], 400, ignore_eos=True)))
    node = world.nodes.decode
    thread.start()
    until("the request is vLLM's", lambda: not world.decode.is_idle())
    node.kill(AGENT)
    thread.join()
    if not answers[0].error:
        raise Unmet("a client got an answer of an agent that was killed")
    node.start(AGENT)
    until("both nodes work again", world.nodes.are_ready)
    until("nothing is in flight any more", world.nodes.is_quiet)
    return world.same({13: ask(AGENT_URL, world.prompts[13], TOKENS)})


def copies(world: World) -> str:
    """What the copies take."""
    pattern = r"lynx {} \w+ from (\d+) to (\d+) in ([\d.]+) ms"
    costs = []
    for vllm, word in ((world.prefill, "saved"), (world.decode, "loaded")):
        found = [(int(end) - int(first), float(took)) for first, end, took in vllm.said(pattern.format(word))]
        costs.append(1000 * statistics.median(took / tokens for tokens, took in found if tokens >= 64))
    return f"1,000 tokens are saved in {costs[0]:.0f} ms and loaded in {costs[1]:.0f} ms"


def without_the_scheduler(world: World) -> str:
    """A vLLM that is told of the connector alone waits until all the bits are there, drafts nothing, and says so."""
    node, verified = world.nodes.decode, len(world.verified())
    attached = node.metric("lynx_engine_attaches_total")
    world.decode.stop()
    node.drafts = False
    node.start(ENGINE)
    world.decode = node.vllm
    until("the agent has the next vLLM", lambda: node.metric("lynx_engine_attaches_total") > attached, START_S)
    until("both nodes work again", world.nodes.are_ready, START_S)
    brought = len(loads(world))
    said = world.same({n: ask(AGENT_URL, world.prompts[n], TOKENS) for n in (4, 15)})
    if len(loads(world)) != brought + 2 or len(world.verified()) != verified:
        raise Unmet(f"{len(loads(world)) - brought} prompts were loaded, {len(world.verified()) - verified} drafts verified")
    if not world.decode.said("(nothing is drafted, since vLLM runs without)"):
        raise Unmet("vLLM's log doesn't say that nothing is drafted")
    return f"{said}; {kv_is_the_same(world)}"


ALL: dict[str, Scenario] = {
    "questions one by one": one_by_one,
    "KV": kv_is_the_same,
    "verification": a_verification_is_one_forward,
    "streams": streaming,
    "many at once": many_at_once,
    "log probabilities": log_probabilities,
    "penalties": penalised,
    "sampling and ends": sampled,
    "a client goes away": a_client_goes,
    "the prefill agent is killed": an_agent_dies,
    "the decode agent is killed": the_decode_agent_dies,
    "KV, after all of it": kv_is_the_same,
    "verification, after all of it": a_verification_is_one_forward,
    "copies": copies,
    "without the scheduler": without_the_scheduler,
}
