//! Fields' paths in the file.

pub(in super::super) const ROLE: &str = "role";
pub(in super::super) const POD_NAME: &str = "pod.name";
pub(in super::super) const POD_NAMESPACE: &str = "pod.namespace";
pub(in super::super) const POD_IP: &str = "pod.ip";
pub(in super::super) const DEPLOYMENT_NAME: &str = "deployment.name";
pub(in super::super) const DEPLOYMENT_GENERATION: &str = "deployment.generation";
pub(in super::super) const DEPLOYMENT_TOPOLOGY: &str = "deployment.topology";
pub(in super::super) const LISTEN_HTTP: &str = "listen.http";
pub(in super::super) const LISTEN_DRAIN: &str = "listen.drain";
pub(in super::super) const LISTEN_PEER: &str = "listen.peer";
pub(in super::super) const LISTEN_DATA: &str = "listen.data";
pub(in super::super) const LISTEN_ANNOUNCED_DATA: &str = "listen.announcedData";
pub(in super::super) const ENGINE_SOCKET: &str = "engine.socket";
pub(in super::super) const ENGINE_SHARED_DIRECTORY: &str = "engine.sharedDirectory";
pub(in super::super) const ENGINE_HTTP: &str = "engine.http";
pub(in super::super) const ENGINE_API_KEY_FILE: &str = "engine.apiKeyFile";
pub(in super::super) const ENGINE_QUEUE: &str = "engine.queue";
pub(in super::super) const ENGINE_KERNELS: &str = "engine.kernels";
pub(in super::super) const ENGINE_PINNED_MEMORY: &str = "engine.pinnedMemory";
pub(in super::super) const PEERS: &str = "peers";
pub(in super::super) const OPERATOR_ADDRESS: &str = "operator.address";
pub(in super::super) const OPERATOR_NAME: &str = "operator.name";
pub(in super::super) const FIDELITY: &str = "transfer.fidelity";
pub(in super::super) const OBJECTIVE: &str = "transfer.objective";
pub(in super::super) const ANCHOR_MODE: &str = "transfer.anchor.mode";
pub(in super::super) const ANCHOR_BITS: &str = "transfer.anchor.bits";
pub(in super::super) const ANCHOR_MIN_BITS: &str = "transfer.anchor.minBits";
pub(in super::super) const ANCHOR_MAX_BITS: &str = "transfer.anchor.maxBits";
pub(in super::super) const PROFILE: &str = "transfer.profile";
pub(in super::super) const MAX_DRAFT_TOKENS: &str = "transfer.maxDraftTokens";
pub(in super::super) const ALLOW_PROVISIONAL: &str = "transfer.allowProvisional";
pub(in super::super) const DEADLINE: &str = "transfer.deadline";
pub(in super::super) const RECEIVE_BUFFER: &str = "transfer.receiveBuffer";
pub(in super::super) const MERGE_BUFFER: &str = "transfer.mergeBuffer";
pub(in super::super) const SEND_BUFFER: &str = "transfer.sendBuffer";
pub(in super::super) const PER_PEER: &str = "transfer.maxPerPeer";
pub(in super::super) const MOST: &str = "transfer.maxTransfers";
pub(in super::super) const MESSAGE_MEMORY: &str = "transfer.messageMemory";
pub(in super::super) const MAX_PEERS: &str = "transfer.maxPeers";
pub(in super::super) const PREFIX_BLOCKS: &str = "transfer.prefixBlocks";
pub(in super::super) const TRANSPORT: &str = "transfer.transport";
pub(in super::super) const RDMA_DEVICE: &str = "transfer.rdma.device";
pub(in super::super) const RDMA_PORT: &str = "transfer.rdma.port";
pub(in super::super) const RDMA_GID_INDEX: &str = "transfer.rdma.gidIndex";
pub(in super::super) const RDMA_RAILS: &str = "transfer.rdma.rails";
pub(in super::super) const RDMA_MEMORY: &str = "transfer.rdma.memory";
pub(in super::super) const RDMA_LENT: &str = "transfer.rdma.lent";
/// By [`Priority::index`](lynx_units::Priority::index), as the next.
pub(in super::super) const SERVICE_LEVELS: [&str; 2] = [
    "transfer.rdma.anchor.serviceLevel",
    "transfer.rdma.residual.serviceLevel",
];
pub(in super::super) const TRAFFIC_CLASSES: [&str; 2] = [
    "transfer.rdma.anchor.trafficClass",
    "transfer.rdma.residual.trafficClass",
];
pub(in super::super) const TLS_MODE: &str = "tls.mode";
pub(in super::super) const TLS_DIRECTORY: &str = "tls.directory";
pub(in super::super) const TLS_PEER_NAME: &str = "tls.peerName";
pub(in super::super) const MAX_BODY: &str = "http.maxBody";
pub(in super::super) const BODY_MEMORY: &str = "http.bodyMemory";
pub(in super::super) const MAX_CONNECTIONS: &str = "http.maxConnections";
pub(in super::super) const IDLE_TIMEOUT: &str = "http.idleTimeout";
pub(in super::super) const BODY_TIMEOUT: &str = "http.bodyTimeout";
pub(in super::super) const WRITE_TIMEOUT: &str = "http.writeTimeout";
pub(in super::super) const ADMIN: &str = "http.admin";
pub(in super::super) const DRAIN_DEADLINE: &str = "drain.deadline";
pub(in super::super) const DRAIN_GRACE: &str = "drain.grace";
pub(in super::super) const OTLP_ENDPOINT: &str = "telemetry.otlpEndpoint";
pub(in super::super) const SAMPLING: &str = "telemetry.sampling";
pub(in super::super) const LOG_FORMAT: &str = "telemetry.logFormat";
pub(in super::super) const LOG: &str = "telemetry.log";
