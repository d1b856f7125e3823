"""NIXL over UCX: one-sided writes into registered memory. Its user polls; five times a millisecond here, as busier polling costs
goodput on few processors."""

import base64
import os
import time

import end

BULK_PARTS = 192
ANCHOR_PARTS = 8
POLL_S = 0.0002


def agent(chosen, held):
    """An agent with this end's memory registered."""
    os.environ.setdefault("UCX_TLS", "tcp")
    os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
    from nixl._api import nixl_agent, nixl_agent_config

    made = nixl_agent(f"{chosen.role}-{chosen.index}", nixl_agent_config(backends=["UCX"]))
    made.register_memory([(held.ctypes.data, held.nbytes, 0, "")], "DRAM")
    return made


def main(chosen):
    """One end."""
    held = end.memory(chosen)
    made = agent(chosen, held)
    if chosen.role == "receive":
        metadata = base64.b64encode(made.get_agent_metadata()).decode()
        end.receive({"metadata": metadata, "memory": held.ctypes.data}, held)
    else:
        hello = end.hear()
        name = made.add_remote_agent(base64.b64decode(hello["metadata"]))

        def descriptors(address, length, count):
            starts, lengths = end.parts(address, length, count)
            return made.get_xfer_descs([(start, size, 0) for start, size in zip(starts, lengths)], "DRAM")

        def post(kind, length):
            here, there = end.place(chosen, kind)
            count = BULK_PARTS if kind == "bulk" else ANCHOR_PARTS
            sources = descriptors(held.ctypes.data + here, length, count)
            targets = descriptors(hello["memory"] + there, length, count)
            transfer = made.initialize_xfer("WRITE", sources, targets, name)
            state = made.transfer(transfer)

            def wait():
                now = state
                while now == "PROC":
                    time.sleep(POLL_S)
                    now = made.check_xfer_state(transfer)
                assert now == "DONE", f"NIXL says {now}"
                made.release_xfer_handle(transfer)

            return wait

        end.send(chosen, held, post)
    # Its threads do not all end by themselves.
    os._exit(0)


if __name__ == "__main__":
    main(end.options())
