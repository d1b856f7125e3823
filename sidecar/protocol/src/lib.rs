//! Pure state machines of a KV transfer: frames, scheduler, reassembly, credit, deadlines.
