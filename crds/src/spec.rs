//! What a user asks for, a file for each part.
#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats each public struct inside of a function"
)]

mod autoscaling;
mod engine;
mod gpus;
mod model;
mod observability;
mod rdma;
mod role;
mod rollout;
mod template;
mod topology;
mod transfer;

pub use autoscaling::{Autoscaling, PrefillBounds, Ratio, Target};
pub use engine::{ApiKeySecret, Engine, EngineType, Http, Port};
pub use gpus::Gpus;
pub use model::{HostPath, HuggingFace, ImageSource, Model, PullPolicy, PvcSource, Source};
pub use observability::{Metrics, Observability, Otlp};
pub use rdma::{Rdma, TrafficClass};
pub use role::{Decode, Pool, Prefill};
pub use rollout::{Rollout, Strategy};
pub use template::Template;
pub use topology::{Topology, TopologyMode};
pub use transfer::{
    Anchor, AnchorMode, ConfigMapProfile, Deadlines, Fidelity, IssuerRef, Objective, Profile,
    PromisedRate, Split, Tls, TlsMode, Transfer, Transport,
};
