"""Mooncake's transfer engine: one-sided writes over TCP into registered memory."""

import os
import sys

import end

# Its slices travel in at most so many descriptors: a batch of more than 1024 is refused.
BULK_PARTS = 192
ANCHOR_PARTS = 8


def engine(chosen, held):
    """An engine that listens at this end's address, with this end's memory registered."""
    os.environ.setdefault("GLOG_minloglevel", "2")
    os.environ.setdefault("MC_TCP_BIND_ADDRESS", chosen.ip)
    from mooncake.engine import TransferEngine

    started = TransferEngine()
    if started.initialize(chosen.ip, "P2PHANDSHAKE", "tcp", "") or started.register_memory(held.ctypes.data, held.nbytes):
        sys.exit("Mooncake's engine does not start")
    return started


def main(chosen):
    """One end."""
    held = end.memory(chosen)
    started = engine(chosen, held)
    if chosen.role == "receive":
        end.receive({"session": f"{chosen.ip}:{started.get_rpc_port()}", "memory": held.ctypes.data}, held)
    else:
        hello = end.hear()

        def post(kind, length):
            here, there = end.place(chosen, kind)
            count = BULK_PARTS if kind == "bulk" else ANCHOR_PARTS
            sources, lengths = end.parts(held.ctypes.data + here, length, count)
            targets, _ = end.parts(hello["memory"] + there, length, count)
            batch = started.batch_transfer_async_write(hello["session"], sources, targets, lengths)

            def wait():
                status = started.get_batch_transfer_status([batch])
                assert status == 0, f"Mooncake says {status}"

            return wait

        end.send(chosen, held, post)
    # Its threads do not all end by themselves.
    os._exit(0)


if __name__ == "__main__":
    main(end.options())
