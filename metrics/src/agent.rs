//! Agents' metrics.

use crate::Kind::{Counter, Gauge, Histogram, Info};
use crate::Values::{Described, Of};
use crate::{By, Group, Label, Metric, TIMES, Unit, group};

/// Upper bounds for the length of a draft.
const DEPTHS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// How a client's request ended: by its end, by its limit of tokens, refused, broken, or by its client.
pub const REQUEST_OUTCOMES: Label = Label {
    name: "outcome",
    values: Of(&["stop", "length", "refused", "failed", "aborted"]),
};
/// How a transfer ended.
pub const TRANSFER_OUTCOMES: Label = Label {
    name: "outcome",
    values: Of(&["complete", "failed", "cancelled"]),
};
/// The two classes of what is sent.
pub const PRIORITIES: Label = Label {
    name: "priority",
    values: Of(&["anchor", "residual"]),
};
/// The two ways over a link.
pub const DIRECTIONS: Label = Label {
    name: "direction",
    values: Of(&["sent", "received"]),
};
/// Whether a token is told for the first time in whatever form, or for good.
pub const TOKENS: Label = Label {
    name: "tokens",
    values: Of(&["provisional", "verified"]),
};
/// Why KV did not come.
pub const KV_FAILURES: Label = Label {
    name: "reason",
    values: Described(
        "`no-peer`: no prefill agent could be asked; `peer`: it refused, or failed; `link`: the link was lost; \
         `deadline`: it did not come in time; `content`: what came could not be merged; `memory`: there was none to receive it into",
    ),
};
/// Why a chunk was thrown away.
pub const CHUNK_DROPS: Label = Label {
    name: "reason",
    values: Of(&["duplicate", "late", "corrupt"]),
};
/// Why a frame was thrown away.
pub const FRAME_DROPS: Label = Label {
    name: "reason",
    values: Of(&["stale", "late"]),
};
/// The anchor's mean width.
pub const WIDTH: Label = Label {
    name: "width",
    values: Described("the anchor's mean width in bits, in steps of an eighth: `3.5`"),
};
/// Whether the engine had a token's KV.
pub const PROMPT_KV: Label = Label {
    name: "kv",
    values: Of(&["computed", "cached"]),
};
/// What drafts were compared with.
pub const COMPARED_WITH: Label = Label {
    name: "kv",
    values: Of(&["refined", "full"]),
};
/// The two kinds of connections between agents.
pub const PLANES: Label = Label {
    name: "plane",
    values: Of(&["control", "data"]),
};
/// Another agent.
pub const PEER: Label = Label {
    name: "peer",
    values: Described(
        "the other agent's pod, or its address where it has no name; at most 256 at a time",
    ),
};
/// A pool of memory.
pub const POOL: Label = Label {
    name: "pool",
    values: Described(
        "`receive`: what links may have on its way to this agent, granted and not yet merged; `merge`: the KV of transfers under way, as BF16, \
         until all of it is merged; `split` (prefill): what is split and not sent",
    ),
};

group! {
    /// The process and its engine.
    AGENT = "The agent and its engine" {
        BUILD: Info, None, Agents, "lynx_build_info" [
            Label { name: "version", values: Described("the release") },
            Label { name: "role", values: Of(&["prefill", "decode"]) }
        ] "This agent's version and role";
        ENGINE_ATTACHED: Gauge, None, Agents, "lynx_engine_attached" []
            "1 where an engine is attached";
        ENGINE_ON_GPU: Gauge, None, Agents, "lynx_engine_kv_on_gpu" []
            "1 where the attached engine's KV is in a GPU's memory and coded there; 0 where the processor does it";
        ENGINE_ATTACHES: Counter, None, Agents, "lynx_engine_attaches_total" []
            "Engines that were taken, one after the other: more than one means that engines end";
        ENGINE_REFUSALS: Counter, None, Agents, "lynx_engine_refusals_total" []
            "Engines that were refused because they do not fit; the log says what differs";
        CERTIFICATE_EXPIRES: Gauge, Seconds, Agents, "lynx_tls_certificate_expiry_timestamp_seconds" []
            "When this agent's certificate ends, in seconds since the Unix epoch; 0 without one";
        HANDSHAKES_FAILED: Counter, None, Agents, "lynx_tls_handshake_failures_total" [PLANES]
            "Connections with other agents or the operator, whoever dialled, that came to nothing because the two sides don't trust each \
             other or only one of them speaks TLS; the log of the side that dialled says why";
        DRAINING: Gauge, None, Agents, "lynx_draining" []
            "1 where no new work is taken";
        IN_FLIGHT: Gauge, None, Agents, "lynx_in_flight" []
            "Requests and transfers in flight";
        RUNNING: Gauge, None, Agents, "lynx_running_requests" []
            "Requests that the engine works on";
        WAITING: Gauge, None, Agents, "lynx_waiting_requests" []
            "Requests that wait for the engine";
        TOKEN_TIME: Gauge, Seconds, Agents, "lynx_engine_token_seconds" []
            "What one token takes the engine, as it reports; 0 before the first";
        FREE_BLOCKS: Gauge, None, Agents, "lynx_engine_free_blocks" []
            "Blocks of the engine's KV pool that a new request could have, as it reports; those that only its prefix cache holds are free";
        PREEMPTIONS: Counter, None, Agents, "lynx_engine_preemptions_total" []
            "Requests that gave their blocks to an older one and waited to be computed again, since the engine began, as it reports: many \
             mean that the pool is small for the answers";
    }
}

group! {
    /// What clients see.
    REQUESTS = "Requests" {
        REQUESTS_ENDED: Counter, None, Decode, "lynx_requests_total" [REQUEST_OUTCOMES]
            "Clients' requests that have ended, by how";
        REQUEST_DURATION: Histogram(TIMES), Seconds, Decode, "lynx_request_duration_seconds" []
            "From a request's arrival until its end, however it ended";
        QUEUE_TIME: Histogram(TIMES), Seconds, Decode, "lynx_queue_seconds" []
            "From a request's arrival until the engine took it";
        FIRST_TOKEN: Histogram(TIMES), Seconds, Decode, "lynx_time_to_first_token_seconds" [TOKENS]
            "From a request's arrival until its first token: in whatever form, and verified";
        SECOND_TOKEN: Histogram(TIMES), Seconds, Decode, "lynx_time_to_second_token_seconds" [TOKENS]
            "From a request's arrival until its second token, likewise: drafting shows here first";
        INTER_TOKEN: Histogram(TIMES), Seconds, Decode, "lynx_inter_token_seconds" []
            "From one verified token to the next; tokens that one verification gives follow each other at once";
        VERIFIED: Counter, None, Decode, "lynx_verified_tokens_total" []
            "Tokens that were told as verified, of requests that have ended";
    }
}

group! {
    /// From one engine to the other.
    TRANSFERS = "Transfers" {
        TRANSFERS_BEGUN: Counter, None, Agents, "lynx_transfers_begun_total" []
            "Transfers that were begun";
        TRANSFERS_ENDED: Counter, None, Agents, "lynx_transfers_total" [TRANSFER_OUTCOMES]
            "Transfers that have ended, by how";
        TIME_TO_ANCHOR: Histogram(TIMES), Seconds, Decode, "lynx_time_to_anchor_seconds" []
            "From a transfer's start until its anchor was merged, and drafting could begin";
        TIME_TO_FULL: Histogram(TIMES), Seconds, Decode, "lynx_time_to_full_seconds" []
            "From a transfer's start until all of it was merged, of complete transfers";
        KV_BYTES: Counter, Bytes, Agents, "lynx_kv_bytes_total" [PRIORITIES]
            "Split bytes of KV: handed to links by a prefill agent, got from them by a decode agent";
        TRANSFER_KV_BYTES: Counter, Bytes, Agents, "lynx_transfer_kv_bytes_total" []
            "The KV of begun transfers as BF16";
        PENDING_KV_BYTES: Gauge, Bytes, Agents, "lynx_pending_kv_bytes" []
            "KV of transfers under way, as BF16";
        PROMPT_TOKENS: Counter, None, Prefill, "lynx_prompt_tokens_total" [PROMPT_KV]
            "Tokens of the prompts of begun transfers: those that the engine computes, and those that its prefix cache had";
        SPLIT_TIME: Counter, Seconds, Prefill, "lynx_split_seconds_total" []
            "Time that was spent splitting KV by significance";
        KV_FAILED: Counter, None, Decode, "lynx_kv_failures_total" [KV_FAILURES]
            "KV that did not come, by reason";
        TRANSFER_RETRIES: Counter, None, Decode, "lynx_transfer_retries_total" []
            "Transfers of which nothing had come when they failed, so that another prefill agent was asked";
        LOCAL_PROMPTS: Counter, None, Decode, "lynx_local_prompts_total" []
            "Requests whose prompt the decode engine computed itself, because no KV came";
    }
}

group! {
    /// What drafting is worth.
    DRAFTS = "Drafts" {
        ANCHOR_WIDTH: Gauge, None, Decode, "lynx_anchor_width" []
            "The anchor's mean width in bits that new transfers get; 0 where none was chosen yet";
        DRAFTS_COMPARED: Counter, None, Decode, "lynx_drafts_total" [WIDTH]
            "Drafts that were compared with the full KV, by the anchor's width";
        DRAFTED: Counter, None, Decode, "lynx_drafted_tokens_total" [WIDTH]
            "Drafted tokens that were compared with the full KV";
        ACCEPTED: Counter, None, Decode, "lynx_accepted_tokens_total" [WIDTH]
            "Drafted tokens that stood";
        WASTED: Counter, None, Decode, "lynx_wasted_tokens_total" [WIDTH]
            "Drafted tokens that a finer KV took back, or whose KV failed, or that nobody wanted any more";
        DRAFT_TOKENS: Histogram(DEPTHS), None, Decode, "lynx_draft_tokens" []
            "How long drafts were when they were compared with the full KV";
        COMPARISONS: Counter, None, Decode, "lynx_draft_comparisons_total" [COMPARED_WITH]
            "Passes in which drafts were compared with a finer KV, or verified on the full one";
    }
}

group! {
    /// Between agents.
    LINKS = "Links and credit" {
        LINK_UP: Gauge, None, Agents, "lynx_link_up" [PEER]
            "1 where the link to this peer is up";
        LINK_ENCRYPTED: Gauge, None, Agents, "lynx_link_encrypted" [PEER]
            "1 where the link to this peer is encrypted";
        LINK_RDMA: Gauge, None, Agents, "lynx_link_rdma" [PEER]
            "1 where the link to this peer goes by RDMA, 0 where it goes by TCP or is down";
        LINK_RATE: Gauge, BytesPerSecond, Agents, "lynx_link_rate_bytes_per_second" [PEER]
            "What the link to this peer carries at best; 0 before it was measured";
        LINK_ROUND_TRIP: Gauge, Seconds, Agents, "lynx_link_round_trip_seconds" [PEER]
            "The shortest round trip to this peer; 0 before it was measured";
        LINKS_OPENED: Counter, None, Agents, "lynx_links_opened_total" []
            "Links that came up; more than there are peers means that links were lost and came back";
        LINKS_ENDED: Counter, None, Agents, "lynx_links_ended_total" []
            "Links that ended, for whatever reason";
        LINKS_WITHOUT_RDMA: Counter, None, Agents, "lynx_links_without_rdma_total" []
            "Links that came up by TCP on an agent that would have had RDMA; its log says why";
        RAILS_LOST: Counter, None, Agents, "lynx_link_rails_lost_total" []
            "Cards that links lost and went on without, for anchors and residuals each; the log says which and why";
        WIRE_BYTES: Counter, Bytes, Agents, "lynx_link_wire_bytes_total" [DIRECTIONS, PRIORITIES]
            "Bytes on the links' sockets, headers included, by the connection's priority";
        PAYLOAD_BYTES: Counter, Bytes, Agents, "lynx_link_payload_bytes_total" [PRIORITIES]
            "Bytes of chunks, without headers: sent by a prefill agent, received by a decode agent";
        CHUNKS: Counter, None, Agents, "lynx_link_chunks_total" [PRIORITIES]
            "Chunks, likewise";
        DROPPED_FRAMES: Counter, None, Agents, "lynx_link_dropped_frames_total" [FRAME_DROPS]
            "Frames that were thrown away: of an older epoch, or about a transfer that is over";
        DROPPED_CHUNKS: Counter, None, Decode, "lynx_link_dropped_chunks_total" [CHUNK_DROPS]
            "Chunks that were thrown away; a corrupt one ends its link";
        DISCARDED_BYTES: Counter, Bytes, Decode, "lynx_link_discarded_bytes_total" []
            "Bytes of chunks that were thrown away";
        GRANTED_BYTES: Counter, Bytes, Decode, "lynx_credit_granted_bytes_total" [PRIORITIES]
            "Credit that senders were told";
        WITHHELD: Counter, Seconds, Decode, "lynx_credit_withheld_seconds_total" []
            "How long residuals' credit was kept back for other links' anchors";
        STARVED: Counter, None, Decode, "lynx_credit_starved_total" []
            "How often residuals got credit although another link's anchor was arriving, having waited for too long";
    }
}

group! {
    /// What the process takes.
    MEMORY = "Memory and process" {
        POOL_BYTES: Gauge, Bytes, Agents, "lynx_memory_bytes" [POOL]
            "What of a bounded pool of memory is taken";
        POOL_LIMIT: Gauge, Bytes, Agents, "lynx_memory_limit_bytes" [POOL]
            "The pool's bound";
        RESIDENT: Gauge, Bytes, Agents, "process_resident_memory_bytes" []
            "Resident memory of the agent's process, the engine's KV pool included as far as it was touched";
        CPU: Counter, Seconds, Agents, "process_cpu_seconds_total" []
            "Time on processors of the agent's process";
        OPEN_FILES: Gauge, None, Agents, "process_open_fds" []
            "Open file descriptors of the agent's process";
    }
}

/// All that agents serve.
pub const GROUPS: &[Group] = &[AGENT, REQUESTS, TRANSFERS, DRAFTS, LINKS, MEMORY];
