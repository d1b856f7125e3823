//! The gRPC contracts: the engine API, peer control, and what agents and operator tell each other.
//!
//! The `.proto` files are the documents; this crate is what a compiler makes of them, and has no logic. A connector for an
//! engine that isn't written in Rust takes the same files.
#![expect(
    missing_docs,
    reason = "generated; the documentation is in the .proto files"
)]
#![expect(clippy::too_many_lines, reason = "generated")]
#![expect(clippy::allow_attributes, reason = "generated")]
#![expect(clippy::allow_attributes_without_reason, reason = "generated")]

mod small;

/// An engine and its agent, over a Unix socket.
pub mod engine {
    /// Version 1.
    pub mod v1 {
        tonic::include_proto!("lynx.engine.v1");
    }
}

/// A decode agent and a prefill agent.
pub mod peer {
    /// Version 1.
    pub mod v1 {
        tonic::include_proto!("lynx.peer.v1");
    }
}

/// An agent and the operator.
pub mod operator {
    /// Version 1.
    pub mod v1 {
        tonic::include_proto!("lynx.operator.v1");
    }
}
