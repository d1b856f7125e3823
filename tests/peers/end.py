"""What both ends of every peer have in common: orders and answers as lines of JSON, and one way to measure.

The receiver says {"hello": ...} first; each sender reads that as its first line, and says {"ready": true} once it is connected.
A sender's order is {"bulk": bytes, "anchor": bytes, "after_s": seconds, "seed": number}: post the bulk, and so long after it the
anchor. Its times are from posting to hearing that the receiver has all. A receiver's order is {"areas": [[offset, length], ...]}:
say the checksums of these parts of your memory. `lynx bench peer` keeps to the same contract.

Memory: each sender has room for one bulk and, behind it, one anchor; a receiver has as much for each of its senders, in order.
"""

import argparse
import json
import sys
import threading
import time
import zlib

import numpy


def options():
    """The command line of one end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("receive", "send"))
    parser.add_argument("--ip", required=True, help="of this end")
    parser.add_argument("--bulk", type=int, required=True, help="the most bytes of a bulk")
    parser.add_argument("--anchor", type=int, required=True, help="the most bytes of an anchor")
    parser.add_argument("--senders", type=int, default=1, help="how many senders the receiver has")
    parser.add_argument("--index", type=int, default=0, help="which of them this one is")
    parser.add_argument("--sockets", type=int, default=1, help="of plain TCP")
    return parser.parse_args()


def memory(chosen):
    """This end's memory, all its pages there."""
    area = chosen.bulk + chosen.anchor
    return numpy.ones(area * (chosen.senders if chosen.role == "receive" else 1), numpy.uint8)


def place(chosen, kind):
    """Where a kind of payload starts: in the sender's memory, and in the receiver's."""
    at = 0 if kind == "bulk" else chosen.bulk
    return at, chosen.index * (chosen.bulk + chosen.anchor) + at


def parts(address, length, count):
    """`length` bytes at `address` as at most `count` equal parts: addresses and lengths."""
    step = -(-length // count)
    starts = range(0, length, step)
    return [address + start for start in starts], [min(step, length - start) for start in starts]


def say(answer):
    """Answers one order."""
    print(json.dumps(answer), flush=True)


def hear():
    """The receiver's hello, as a sender hears it."""
    return json.loads(sys.stdin.readline())


def receive(hello, held):
    """Says hello, and answers a receiver's orders about the memory it holds."""
    say({"hello": hello})
    cpu = time.process_time()
    for line in sys.stdin:
        areas = json.loads(line)["areas"]
        spent = time.process_time() - cpu
        crcs = [zlib.crc32(held[offset : offset + length]) for offset, length in areas]
        # What is checked next time has to have come again.
        held[:] = 0
        say({"cpu_s": spent, "crcs": crcs})
        cpu = time.process_time()


def send(chosen, held, post):
    """Carries out a sender's orders. `post(kind, length)` starts a transfer of the first `length` bytes of a kind's place, and
    gives a function that waits until the receiver has them."""
    say({"ready": True})
    for line in sys.stdin:
        order = json.loads(line)
        lengths = {kind: order[kind] for kind in ("bulk", "anchor") if order[kind]}
        payloads = {}
        for kind, length in lengths.items():
            at, _ = place(chosen, kind)
            payloads[kind] = held[at : at + length]
            payloads[kind][:] = numpy.random.default_rng(order["seed"]).integers(0, 256, length, numpy.uint8)
        answer = {"cpu_s": time.process_time()}
        waiters = []
        for kind, length in lengths.items():
            if waiters:
                time.sleep(order["after_s"])
            waiters.append(threading.Thread(target=clock, args=(answer, kind, time.perf_counter(), post(kind, length))))
            waiters[-1].start()
        for waiter in waiters:
            waiter.join()
        answer["cpu_s"] = time.process_time() - answer["cpu_s"]
        for kind in ("bulk", "anchor"):
            answer[kind + "_crc"] = zlib.crc32(payloads.get(kind, b""))
        say(answer)


def clock(answer, kind, start, wait):
    """Notes how long a transfer took that was posted at `start`."""
    wait()
    answer[kind + "_s"] = time.perf_counter() - start
