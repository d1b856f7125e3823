//! Every field of the configuration.

/// A field: where it is, what it is unless said otherwise, what may be said, and what it means.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) path: &'static str,
    pub(super) default: &'static str,
    pub(super) allowed: &'static str,
    pub(super) about: &'static str,
}

/// The paths, each once, so that a field that is read and one that is declared can't differ.
pub(super) mod path;

const ADDRESS: &str = "an address and port, such as 0.0.0.0:8080 or [::]:8080";
const BITS: &str = "bits between 1 and 8 in steps of 0.125, such as 4 or 3.5";
const TEXT: &str = "a text without spaces";
const TIME: &str = "numbers with ms, s, m or h, such as 30s or 1m30s";
const LEVEL: &str = "a number from 0 to 7";
const BYTE: &str = "a number from 0 to 255";
const SIZE: &str = "bytes, or a number and Ki, Mi or Gi, such as 64Mi, above 0";

/// In the order in which people read them: paths of one section are neighbours.
pub(super) const FIELDS: &[Field] = &[
    Field {
        path: path::ROLE,
        default: "decode",
        allowed: "prefill or decode",
        about: "Which end of the transfers this agent is.",
    },
    Field {
        path: path::POD_NAME,
        default: "local",
        allowed: TEXT,
        about: "The pod's name, by the downward API. Unique among the agents of a deployment.",
    },
    Field {
        path: path::POD_NAMESPACE,
        default: "",
        allowed: TEXT,
        about: "The pod's namespace, by the downward API.",
    },
    Field {
        path: path::POD_IP,
        default: "",
        allowed: "an IP address",
        about: "The pod's address, by the downward API: where decode agents reach a prefill agent.",
    },
    Field {
        path: path::DEPLOYMENT_NAME,
        default: "",
        allowed: TEXT,
        about: "The LynxDeployment that this agent belongs to.",
    },
    Field {
        path: path::DEPLOYMENT_GENERATION,
        default: "",
        allowed: TEXT,
        about: "Agents of different generations never pair.",
    },
    Field {
        path: path::DEPLOYMENT_TOPOLOGY,
        default: "",
        allowed: TEXT,
        about: "The node's value of the deployment's topology label.",
    },
    Field {
        path: path::LISTEN_HTTP,
        default: "0.0.0.0:8080",
        allowed: ADDRESS,
        about: "Health, metrics, and on a decode agent the OpenAI endpoint.",
    },
    Field {
        path: path::LISTEN_DRAIN,
        default: "0.0.0.0:8081",
        allowed: ADDRESS,
        about: "The order to drain (GET or POST /drain?deadline=30s), for a preStop hook: not for clients.",
    },
    Field {
        path: path::LISTEN_PEER,
        default: "0.0.0.0:7400",
        allowed: ADDRESS,
        about: "Peer control of a prefill agent (gRPC).",
    },
    Field {
        path: path::LISTEN_DATA,
        default: "0.0.0.0:7401",
        allowed: ADDRESS,
        about: "The transfer protocol of a prefill agent.",
    },
    Field {
        path: path::LISTEN_ANNOUNCED_DATA,
        default: "",
        allowed: "host:port",
        about: "Where peers are to dial for listen.data, where that is behind a port mapping.",
    },
    Field {
        path: path::ENGINE_SOCKET,
        default: "/run/lynx/engine.sock",
        allowed: "a path of at most 100 bytes",
        about: "The Unix socket that the engine dials.",
    },
    Field {
        path: path::ENGINE_SHARED_DIRECTORY,
        default: "/run/lynx",
        allowed: "a path",
        about: "The directory, best in memory, that the engine puts its KV pool into.",
    },
    Field {
        path: path::ENGINE_HTTP,
        default: "",
        allowed: "a URL such as http://127.0.0.1:8000",
        about: "The HTTP server of an engine that has one of its own, as vLLM does; others are then refused.",
    },
    Field {
        path: path::ENGINE_API_KEY_FILE,
        default: "",
        allowed: "a path",
        about: "The API key that engine.http wants, for a prefill agent's questions; clients bring their own.",
    },
    Field {
        path: path::ENGINE_QUEUE,
        default: "64",
        allowed: "a number from 1 to 100000",
        about: "How many requests may be with the engine, waiting ones included. More get 429.",
    },
    Field {
        path: path::ENGINE_KERNELS,
        default: "/usr/share/lynx/kernels",
        allowed: "a path",
        about: "Where the kernels for GPUs lie. They are used where the engine's KV pool is in a GPU's memory.",
    },
    Field {
        path: path::ENGINE_PINNED_MEMORY,
        default: "64Mi",
        allowed: SIZE,
        about: "Memory that can't be swapped out, for what goes to a GPU and comes from it, at most.",
    },
    Field {
        path: path::PEERS,
        default: "",
        allowed: "a list of host:port",
        about: "Prefill agents' peer control, besides those that the operator tells. Decode only.",
    },
    Field {
        path: path::OPERATOR_ADDRESS,
        default: "",
        allowed: "a URL such as http://lynx-operator-agents.lynx-system:9090",
        about: "The operator's control service. Without it the agent works by this file alone.",
    },
    Field {
        path: path::OPERATOR_NAME,
        default: "",
        allowed: "a host name such as small.team.lynx-operator",
        about: "The name that the operator's certificate must carry, where that isn't the host of its address. With https only.",
    },
    Field {
        path: path::FIDELITY,
        default: "exact",
        allowed: "exact or int8",
        about: "What the KV is when all has arrived: bit-identical BF16, or 8-bit values.",
    },
    Field {
        path: path::OBJECTIVE,
        default: "first-tokens",
        allowed: "first-tokens or verified",
        about: "What an adaptive anchor's width is chosen for.",
    },
    Field {
        path: path::ANCHOR_MODE,
        default: "adaptive",
        allowed: "adaptive or fixed",
        about: "Whether the anchor's mean width follows the link.",
    },
    Field {
        path: path::ANCHOR_BITS,
        default: "4",
        allowed: BITS,
        about: "The width of a fixed anchor.",
    },
    Field {
        path: path::ANCHOR_MIN_BITS,
        default: "3",
        allowed: BITS,
        about: "The narrowest adaptive anchor.",
    },
    Field {
        path: path::ANCHOR_MAX_BITS,
        default: "5",
        allowed: BITS,
        about: "The widest adaptive anchor.",
    },
    Field {
        path: path::PROFILE,
        default: "",
        allowed: "a path",
        about: "An anchor profile (lynx calibrate). Without one: the built-in one of the model, or uniform widths.",
    },
    Field {
        path: path::MAX_DRAFT_TOKENS,
        default: "64",
        allowed: "a number from 0 to 64",
        about: "How many tokens are drafted before they are verified, at most. 0 never drafts.",
    },
    Field {
        path: path::ALLOW_PROVISIONAL,
        default: "true",
        allowed: "true or false",
        about: "Whether clients may ask for tokens that are not verified yet.",
    },
    Field {
        path: path::DEADLINE,
        default: "60s",
        allowed: TIME,
        about: "When a transfer that is not complete, prefill included, has failed; the engine then computes the prompt itself.",
    },
    Field {
        path: path::RECEIVE_BUFFER,
        default: "256Mi",
        allowed: SIZE,
        about: "Memory for what has arrived and is not merged, in all.",
    },
    Field {
        path: path::MERGE_BUFFER,
        default: "1Gi",
        allowed: SIZE,
        about: "Memory for what transfers under way bring until all of it is merged. Decode only.",
    },
    Field {
        path: path::SEND_BUFFER,
        default: "256Mi",
        allowed: SIZE,
        about: "Memory for what is split and not sent, in all; splitting waits. Prefill only.",
    },
    Field {
        path: path::PER_PEER,
        default: "256",
        allowed: "a number from 1 to 1000",
        about: "Most transfers under way for one decode agent; more are refused. Prefill only.",
    },
    Field {
        path: path::MOST,
        default: "1024",
        allowed: "a number from 1 to 100000",
        about: "Most transfers under way in all; more are refused. Prefill only.",
    },
    Field {
        path: path::MESSAGE_MEMORY,
        default: "64Mi",
        allowed: SIZE,
        about: "Memory for the messages of peer control that come, in all; more are refused. Prefill only.",
    },
    Field {
        path: path::MAX_PEERS,
        default: "256",
        allowed: "a number from 2 to 100000",
        about: "Most links, and most connections of peer control. Prefill only.",
    },
    Field {
        path: path::PREFIX_BLOCKS,
        default: "65536",
        allowed: "a number from 0 to 10000000",
        about: "The newest cached blocks (64 tokens each) that a prefill agent tells of, and a decode agent remembers of each peer.",
    },
    Field {
        path: path::TRANSPORT,
        default: "auto",
        allowed: "auto, rdma or tcp",
        about: "What links go by: RDMA where both agents have it and TCP elsewhere, RDMA or nothing, or TCP. RDMA isn't encrypted: with tls.mode all, auto is TCP.",
    },
    Field {
        path: path::RDMA_DEVICE,
        default: "",
        allowed: "an RDMA device's name, such as mlx5_0",
        about: "The card of all links. Without one: for each the card that reaches its peer.",
    },
    Field {
        path: path::RDMA_PORT,
        default: "",
        allowed: "a number from 1 to 255",
        about: "The card's port. Without one: any.",
    },
    Field {
        path: path::RDMA_GID_INDEX,
        default: "",
        allowed: BYTE,
        about: "The index of the GID. Without one: a RoCEv2 address.",
    },
    Field {
        path: path::RDMA_RAILS,
        default: "1",
        allowed: "a number from 1 to 4",
        about: "How many cards a link goes by at most: others beside that one, where the peer has as many and they share networks.",
    },
    Field {
        path: path::RDMA_MEMORY,
        default: "1Gi",
        allowed: SIZE,
        about: "Memory that links may have registered with cards, in all: 17 MiB for each and each of its cards. Links for which there is none go by TCP, or aren't made.",
    },
    Field {
        path: path::RDMA_LENT,
        default: "512Mi",
        allowed: "bytes, or a number and Ki, Mi or Gi, such as 64Mi; 0 for none",
        about: "Besides, what of the memory that a GPU's segments lie in cards may read without a copy: all of it for each link, card and priority. Links for which there is none copy.",
    },
    Field {
        path: path::SERVICE_LEVELS[0],
        default: "0",
        allowed: LEVEL,
        about: "The service level of anchors: on RoCE the priority of tagged frames. Both agents say the same.",
    },
    Field {
        path: path::TRAFFIC_CLASSES[0],
        default: "0",
        allowed: BYTE,
        about: "The traffic class of anchors: the IP header's byte, DSCP times four. Both agents say the same.",
    },
    Field {
        path: path::SERVICE_LEVELS[1],
        default: "0",
        allowed: LEVEL,
        about: "The service level of residuals.",
    },
    Field {
        path: path::TRAFFIC_CLASSES[1],
        default: "0",
        allowed: BYTE,
        about: "The traffic class of residuals.",
    },
    Field {
        path: path::TLS_MODE,
        default: "off",
        allowed: "off, control or all",
        about: "What is encrypted: nothing, peer control and the operator's stream, or links as well. The same on all agents.",
    },
    Field {
        path: path::TLS_DIRECTORY,
        default: "",
        allowed: "a path",
        about: "Where tls.crt, tls.key and ca.crt are, as cert-manager's Secrets are mounted. Read again as they change.",
    },
    Field {
        path: path::TLS_PEER_NAME,
        default: "",
        allowed: TEXT,
        about: "The URI or DNS name that peers' certificates must carry. Without one: the first that the own one carries.",
    },
    Field {
        path: path::MAX_BODY,
        default: "4Mi",
        allowed: SIZE,
        about: "The largest request.",
    },
    Field {
        path: path::BODY_MEMORY,
        default: "256Mi",
        allowed: SIZE,
        about: "What the bodies of all requests under way may take. More get 429.",
    },
    Field {
        path: path::MAX_CONNECTIONS,
        default: "1024",
        allowed: "a number from 1 to 100000",
        about: "How many connections there may be. A few more may ask how the agent is; others get 503.",
    },
    Field {
        path: path::IDLE_TIMEOUT,
        default: "75s",
        allowed: TIME,
        about: "How long the head of the next request on a connection may take.",
    },
    Field {
        path: path::BODY_TIMEOUT,
        default: "30s",
        allowed: TIME,
        about: "How long a request's body may take.",
    },
    Field {
        path: path::WRITE_TIMEOUT,
        default: "30s",
        allowed: TIME,
        about: "How long a client may take nothing of its answer before it is cut off.",
    },
    Field {
        path: path::ADMIN,
        default: "false",
        allowed: "true or false",
        about: "Whether /lynx/v1/prefix-cache/* is there. For measurements; not for a shared service.",
    },
    Field {
        path: path::DRAIN_DEADLINE,
        default: "60s",
        allowed: TIME,
        about: "How long a drain waits for what is in flight, where its caller does not say.",
    },
    Field {
        path: path::DRAIN_GRACE,
        default: "0s",
        allowed: "0s, or numbers with ms, s, m or h, such as 5s",
        about: "How long new work is still taken after a drain has begun: as long as a balancer takes to learn of it by /readyz.",
    },
    Field {
        path: path::OTLP_ENDPOINT,
        default: "",
        allowed: "a URL such as http://collector:4317",
        about: "Where traces go (OTLP over gRPC). The standard OTEL_* variables win over it.",
    },
    Field {
        path: path::SAMPLING,
        default: "1",
        allowed: "a number from 0 to 1",
        about: "The share of traces that are kept where no caller has decided.",
    },
    Field {
        path: path::LOG_FORMAT,
        default: "text",
        allowed: "text or json",
        about: "How log lines look.",
    },
    Field {
        path: path::LOG,
        default: "info",
        allowed: "off, error, warn, info, debug, trace, or one of them for a target, such as info,lynx_agent=debug",
        about: "What is logged. RUST_LOG wins over it.",
    },
];

/// The field at this path.
pub(super) fn find(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.path == path)
}

/// The variable that overrides the field at this path: `engine.sharedDirectory` is `LYNX_ENGINE_SHARED_DIRECTORY`.
pub(super) fn variable(path: &str) -> String {
    let mut name = "LYNX_".to_owned();
    for c in path.chars() {
        match c {
            '.' => name.push('_'),
            c if c.is_ascii_uppercase() => {
                name.push('_');
                name.push(c);
            }
            c => name.push(c.to_ascii_uppercase()),
        }
    }
    name
}
