//! A prefill agent that has all KV already, and misbehaves as it is told to.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lynx_kernels::{Codec, Profile};
use lynx_proto::engine::v1::Role;
use lynx_proto::peer::v1::peer_server::{Peer, PeerServer};
use lynx_proto::peer::v1::transfer_event::Kind;
use lynx_proto::peer::v1::{
    CheckRequest, CheckResponse, First, Layer, PeerNews, ProbeAnswer, ProbeRequest, Sent, Started,
    TransferEvent, TransferRequest, WatchRequest,
};
use lynx_protocol::sender::{Event, OpenTransfer};
use lynx_transport::emulate::{LinkOptions, Relay};
use lynx_transport::{Clock, LinkConfig, Listener, SegmentPayload, SenderHandle, SharedBytes};
use lynx_units::{BitRate, TransferId, UnitIndex};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status};

use crate::carriage::Carriage;
use crate::coding::Coding;
use crate::identity::Identity;
use crate::integrity;
use crate::pool::{Access, Piece, Readable};
use crate::testing;

pub(super) const FIRST: u32 = 65;
const RATE: BitRate = BitRate::from_megabits_per_second(20);

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    #[default]
    None,
    /// It takes no new work.
    Busy,
    /// The last unit's last segment has a wrong checksum.
    Checksum,
    /// The offer is of another prompt.
    Offer,
    /// Everything but the last unit comes, and then nothing.
    Stall,
    /// Everything but the last unit comes, and then an error.
    Error,
    /// Everything but the last unit comes, and then the link is gone.
    Cut,
    /// It is only asked, and does nothing at all.
    Silent,
    /// It is asked, and then its links are gone.
    Gone,
    /// It has the first token at once, and offers the KV when nobody listens any more.
    Late,
}

/// A prefill agent.
#[derive(Debug)]
pub(super) struct Prefill {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    fault: Mutex<Fault>,
    links: watch::Sender<HashMap<String, SenderHandle>>,
    asked: Mutex<Vec<TransferRequest>>,
    /// What happened to its transfers.
    happened: watch::Sender<Vec<Event>>,
    watchers: watch::Sender<Vec<mpsc::UnboundedSender<Result<PeerNews, Status>>>>,
    blocks: Arc<Readable>,
    profile: Profile,
    identity: Identity,
    /// Narrow enough for an anchor to be there for a while before the rest is.
    relay: Relay,
    clock: Clock,
}

impl Drop for Prefill {
    fn drop(&mut self) {
        self.shared.links.send_modify(HashMap::clear);
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Prefill {
    /// Has the KV of `tokens` tokens in the first blocks of a pool in `directory`.
    pub(super) async fn start(directory: &Path, tokens: u32, generation: &str) -> Self {
        Self::start_by(&Carriage::default(), directory, tokens, generation).await
    }

    /// The same with links that are carried so.
    pub(super) async fn start_by(
        carriage: &Carriage,
        directory: &Path,
        tokens: u32,
        generation: &str,
    ) -> Self {
        let attach = testing::attach(Role::Prefill, super::engine::BLOCKS);
        testing::make_pool(directory, &attach, 7);
        let pool = testing::open_pool(directory, &attach, Access::Read);
        let profile = Profile::uniform(pool.layout().shape()).unwrap();
        let identity = Identity::new("prefill-0", &attach, pool.layout(), &profile, generation);
        let blocks = (0..tokens.div_ceil(64)).collect();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let clock = Clock::start();
        let config = LinkConfig::new(clock, identity.to_peer_info()).unwrap();
        let mut listener =
            Listener::bind(any, carriage.carry(config, &Arc::default(), None)).unwrap();
        let control = TcpListener::bind(any).await.unwrap();
        let address = control.local_addr().unwrap();
        let shared = Arc::new(Shared {
            fault: Mutex::default(),
            links: watch::Sender::default(),
            asked: Mutex::default(),
            happened: watch::Sender::default(),
            watchers: watch::Sender::default(),
            blocks: Arc::new(Readable::new(&pool, blocks, tokens, tokens).unwrap()),
            profile,
            identity,
            relay: Relay::start(any, listener.address(), LinkOptions::new(RATE)).unwrap(),
            clock,
        });
        let links = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            loop {
                let connected = listener.accept().await;
                let name = connected.ticket().secret().to_owned();
                let (handle, mut events) = connected.into_sender();
                let insert = |links: &mut HashMap<_, _>| drop(links.insert(name, handle));
                links.links.send_modify(insert);
                let seen = Arc::clone(&links);
                tokio::spawn(async move {
                    while let Some(event) = events.next().await {
                        seen.happened.send_modify(|happened| happened.push(event));
                    }
                });
            }
        });
        let service = PeerServer::new(Service(Arc::clone(&shared)));
        let serving = tokio::spawn(async move {
            let incoming = TcpListenerStream::new(control);
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(incoming).await.unwrap();
        });
        Self {
            address,
            shared,
            tasks: vec![accepting, serving],
        }
    }

    pub(super) fn set_fault(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap() = fault;
    }

    /// Tells all that listen, once somebody does.
    pub(super) async fn tell(&self, news: PeerNews) {
        let mut watchers = self.shared.watchers.subscribe();
        let watchers = watchers.wait_for(|watchers| !watchers.is_empty()).await;
        for watcher in &*watchers.unwrap() {
            drop(watcher.send(Ok(news.clone())));
        }
    }

    pub(super) fn asked(&self) -> Vec<TransferRequest> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Waits until something of a kind has happened to a transfer.
    pub(super) async fn happens(&self, is_it: impl Fn(&Event) -> bool) -> Event {
        let mut happened = self.shared.happened.subscribe();
        loop {
            let seen = happened
                .borrow_and_update()
                .iter()
                .find(|event| is_it(event))
                .cloned();
            if let Some(event) = seen {
                return event;
            }
            happened.changed().await.unwrap();
        }
    }

    /// Its KV.
    pub(super) fn blocks(&self) -> &Readable {
        &self.shared.blocks
    }
}

struct Service(Arc<Shared>);

#[tonic::async_trait]
impl Peer for Service {
    type TransferStream = UnboundedReceiverStream<Result<TransferEvent, Status>>;
    type ProbeStream = UnboundedReceiverStream<Result<ProbeAnswer, Status>>;

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<Self::ProbeStream>, Status> {
        Err(Status::unimplemented("only `lynx doctor` asks"))
    }

    type WatchStream = UnboundedReceiverStream<Result<PeerNews, Status>>;

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (news, stream) = mpsc::unbounded_channel();
        self.0.watchers.send_modify(|all| all.push(news));
        Ok(Response::new(UnboundedReceiverStream::new(stream)))
    }

    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        let caller = request.into_inner().caller.unwrap();
        if let Some(difference) = self.0.identity.difference(&caller) {
            return Err(Status::failed_precondition(difference));
        }
        Ok(Response::new(CheckResponse {
            callee: Some(self.0.identity.to_proto()),
            data_address: format!(":{}", self.0.relay.address().port()),
            draining: false,
        }))
    }

    async fn transfer(
        &self,
        request: Request<TransferRequest>,
    ) -> Result<Response<Self::TransferStream>, Status> {
        let request = request.into_inner();
        self.0.asked.lock().unwrap().push(request.clone());
        let fault = *self.0.fault.lock().unwrap();
        if fault == Fault::Busy {
            return Err(Status::unavailable("being drained"));
        }
        let (events, stream) = mpsc::unbounded_channel();
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move { shared.send(request, fault, &events).await });
        Ok(Response::new(UnboundedReceiverStream::new(stream)))
    }
}

type Events = mpsc::UnboundedSender<Result<TransferEvent, Status>>;

impl Shared {
    /// This end of a link. The dialling side may have known of it earlier.
    async fn link(&self, ticket: &str) -> SenderHandle {
        let mut links = self.links.subscribe();
        let linked = links.wait_for(|links| links.contains_key(ticket));
        linked.await.unwrap()[ticket].clone()
    }

    async fn send(&self, request: TransferRequest, fault: Fault, events: &Events) {
        let tell = |kind| drop(events.send(Ok(TransferEvent { kind: Some(kind) })));
        if fault == Fault::Gone {
            // What is not there yet would not go.
            self.link(&request.link).await;
            self.links.send_modify(HashMap::clear);
        }
        if matches!(fault, Fault::Silent | Fault::Gone) {
            return events.closed().await;
        }
        tell(Kind::Started(Started::default()));
        tell(Kind::Layer(Layer {
            layer: 0,
            end_token: 64,
            ..Layer::default()
        }));
        if fault == Fault::Late {
            tell(first());
            events.closed().await;
        }
        let descriptor = request.coding.unwrap();
        let coding = Coding::new(self.blocks.shape(), &descriptor).unwrap();
        let link = self.link(&request.link).await;
        let id = TransferId(request.transfer);
        let mut offered = coding.descriptor_bytes();
        if fault == Fault::Offer {
            offered.truncate(2);
        }
        link.open(OpenTransfer {
            transfer: id,
            descriptor: offered.into(),
            plan: Arc::new(coding.transfer().clone()),
            deadline: self.clock.now() + Duration::from_secs(60),
        })
        .unwrap();
        let codec = Codec::detect();
        let units = coding.units().len();
        let stops = matches!(fault, Fault::Stall | Fault::Error | Fault::Cut);
        let mut published = 0;
        for unit in 0..units - usize::from(stops) {
            let segments = coding.encode(&codec, &self.profile, unit, &self.blocks);
            let mut segments = segments.unwrap();
            if fault == Fault::Checksum && unit + 1 == units {
                segments.last_mut().unwrap().1 ^= 1;
            }
            published += segments
                .iter()
                .map(|(bytes, _)| bytes.len() as u64)
                .sum::<u64>();
            let payload = |(bytes, checksum): (Piece, _)| SegmentPayload {
                bytes: SharedBytes::from(bytes.into_vec()),
                checksum,
            };
            let segments = segments.into_iter().map(payload).collect();
            let unit = UnitIndex(u32::try_from(unit).unwrap());
            link.publish(id, unit, segments).unwrap();
        }
        tell(first());
        match fault {
            Fault::Error => drop(events.send(Err(Status::internal("the engine broke")))),
            Fault::Cut => {
                let arrived = |link: &SenderHandle| {
                    let [anchor, residual] = link.stats().protocol.acknowledged;
                    (anchor + residual).get() >= published
                };
                // Figures have no event to wait for.
                while !arrived(&link) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                self.links.send_modify(HashMap::clear);
                drop(link);
                events.closed().await;
            }
            Fault::Stall => events.closed().await,
            _ => tell(Kind::Sent(Sent {
                engine_memory_bytes: 1000,
                agent_memory_bytes: 234,
            })),
        }
    }
}

fn first() -> Kind {
    Kind::First(First {
        token: FIRST,
        end_unix_ns: 0,
        checksum: integrity::of_first(FIRST, None),
        logprobs: None,
    })
}
