//! A decode agent's side, as far as a prefill agent sees it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lynx_kernels::{Codec, Profile, checksum};
use lynx_proto::engine::v1 as engine;
use lynx_proto::peer::v1::peer_client::PeerClient;
use lynx_proto::peer::v1::{
    CheckRequest, Coding as Descriptor, TransferEvent, TransferRequest, transfer_event,
};
use lynx_protocol::CreditBook;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_transport::{
    Clock, Dialler, LinkConfig, ReceiverEvent, ReceiverEvents, ReceiverHandle, Ticket,
};
use lynx_units::Bytes;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

use super::{Agent, prefill_engine};
use crate::carriage::Carriage;
use crate::coding::{Coding, Received};
use crate::identity::{Identity, profile_name};
use crate::integrity;
use crate::method::Method;
use crate::pool::{Layout, Writable};
use crate::security::{Security, To, connect};
use crate::testing::soon;

pub(super) struct Peer {
    pub(super) identity: Identity,
    pub(super) client: PeerClient<Channel>,
    pub(super) link: ReceiverHandle,
    pub(super) received: ReceiverEvents,
    pub(super) ticket: Ticket,
}

/// Who a decode agent with an engine like `engine` is.
pub(super) fn identity(engine: &engine::Attach) -> Identity {
    let layout = Layout::parse(engine.layout.as_ref().unwrap()).unwrap();
    Identity::new("decode-0", engine, &layout, &profile(), "gen-1")
}

pub(super) fn profile() -> Profile {
    let engine = prefill_engine();
    let layout = Layout::parse(engine.layout.as_ref().unwrap()).unwrap();
    Profile::uniform(layout.shape()).unwrap()
}

pub(super) async fn client(agent: &Agent) -> PeerClient<Channel> {
    PeerClient::connect(format!("http://{}", agent.control))
        .await
        .unwrap()
}

impl Peer {
    /// Checks, dials and is linked.
    pub(super) async fn meet(agent: &Agent) -> Self {
        Self::meet_with(agent, &Security::default()).await
    }

    pub(super) async fn meet_with(agent: &Agent, security: &Security) -> Self {
        Self::meet_by(agent, security, &Carriage::default()).await
    }

    pub(super) async fn meet_by(agent: &Agent, security: &Security, carriage: &Carriage) -> Self {
        let identity = identity(&prefill_engine());
        let endpoint = Endpoint::from_shared(format!("http://{}", agent.control)).unwrap();
        let channel = connect(endpoint, To::Peer, security).await;
        let mut client = PeerClient::new(channel.unwrap());
        let check = client.check(CheckRequest {
            caller: Some(identity.to_proto()),
        });
        let answer = soon(check).await.unwrap().into_inner();
        assert!(!answer.draining);
        let address: SocketAddr = answer.data_address.parse().unwrap();
        let config = LinkConfig::new(Clock::start(), identity.to_peer_info())
            .unwrap()
            .with_credentials(security.data().cloned());
        let connected = Dialler::new(address, carriage.carry(config, &Arc::default(), None))
            .connect(Duration::from_secs(20))
            .await
            .unwrap();
        let window = ReceiverConfig {
            window: [Bytes::from_mib(16); 2],
        };
        let book = CreditBook::new(window.window.into_iter().sum());
        let ticket = connected.ticket().clone();
        let (link, received) = connected.into_receiver(window, &book).unwrap();
        Self {
            identity,
            client,
            link,
            received,
            ticket,
        }
    }

    /// What a usual transfer asks.
    pub(super) fn ask(
        &self,
        method: Method,
        prompt_tokens: u32,
        from_token: u32,
    ) -> TransferRequest {
        let tokens: Vec<u32> = (0..prompt_tokens).collect();
        TransferRequest {
            caller: Some(self.identity.to_proto()),
            transfer: 1,
            link: self.ticket.secret().to_owned(),
            coding: Some(Descriptor {
                method: lynx_proto::peer::v1::Method::from(method).into(),
                prompt_tokens,
                from_token,
                anchor_k_eighths: 28,
                anchor_v_bits: 3,
                profile: profile_name(&profile()),
            }),
            checksum: integrity::of_question(&tokens, None),
            tokens,
            sampling: None,
            time_left_ns: 60_000_000_000,
            timeline: true,
        }
    }

    /// Asks until the link is known to the agent, which hears of it a moment after the dialler does.
    pub(super) async fn transfer(
        &mut self,
        request: &TransferRequest,
    ) -> Result<Streaming<TransferEvent>, Status> {
        soon(async {
            loop {
                match self.client.transfer(request.clone()).await {
                    Err(status) if status.message().contains("is not connected") => {
                        tokio::task::yield_now().await;
                    }
                    answer => return answer.map(tonic::Response::into_inner),
                }
            }
        })
        .await
    }

    /// Accepts the transfer, and merges all that comes into `blocks`.
    pub(super) async fn receive(&mut self, descriptor: &Descriptor, blocks: &mut Writable) {
        let coding = Coding::new(blocks.shape(), descriptor).unwrap();
        let (codec, profile) = (Codec::detect(), profile());
        let units = coding.units().len();
        let mut records: Vec<Received> = (0..units).map(|_| coding.receive()).collect();
        loop {
            match soon(self.received.next()).await.unwrap() {
                ReceiverEvent::Offered {
                    transfer,
                    descriptor,
                    ..
                } => {
                    assert!(coding.is_described_by(&descriptor));
                    let plan = Arc::new(coding.transfer().clone());
                    self.link.accept(transfer, plan).unwrap();
                }
                ReceiverEvent::SegmentComplete {
                    unit,
                    segment,
                    bytes,
                    checksum: expected,
                    ..
                } => {
                    assert_eq!(checksum(&bytes), expected);
                    let unit = unit.0 as usize;
                    let segment = usize::from(segment.0);
                    records[unit]
                        .take(segment, bytes.into_vec(), expected)
                        .unwrap();
                    coding
                        .decode(&codec, &profile, unit, &mut records[unit], blocks)
                        .unwrap();
                    records[unit].merged();
                }
                ReceiverEvent::LevelComplete { .. } => {}
                ReceiverEvent::Complete(_) => break,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The next thing that is told.
pub(super) async fn next(
    events: &mut Streaming<TransferEvent>,
) -> Result<Option<transfer_event::Kind>, Status> {
    let event = soon(events.message()).await?;
    Ok(event.map(|event| event.kind.unwrap()))
}

/// How the events end, whatever comes before.
pub(super) async fn end(events: &mut Streaming<TransferEvent>) -> Status {
    loop {
        match next(events).await {
            Ok(Some(_)) => {}
            Ok(None) => return Status::ok("it ended well"),
            Err(status) => return status,
        }
    }
}
