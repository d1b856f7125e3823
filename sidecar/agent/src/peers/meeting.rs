//! One peer's task: check whether it fits, dial, pass on, and again.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lynx_proto::peer::v1::peer_client::PeerClient;
use lynx_proto::peer::v1::{CheckRequest, CheckResponse};
use lynx_protocol::CreditBook;
use lynx_protocol::credit::BookFull;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_transport::{Clock, DialError, Dialler, LinkConfig, ReceiverEvents};
use lynx_units::Epoch;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::{Meeting, News, PeerId, Tell, What, watching};
use crate::carriage::{Carriage, Carried};
use crate::counters::Links;
use crate::identity::Identity;
use crate::run::chain;
use crate::security::{self, Distrust, Security};

/// How long peer control may take to connect, and to answer a check.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a linked peer is asked whether it drains.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The first pause after a failure; it doubles up to one of the next two.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause where trying again can help: a peer that is back is found within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause where it can't, unless somebody changes something.
const HOPELESS_PAUSE: Duration = Duration::from_secs(30);

/// What a peer's task needs.
#[derive(Debug)]
pub(super) struct Invitation {
    pub(super) peer: PeerId,
    pub(super) address: String,
    pub(super) identity: Identity,
    pub(super) clock: Clock,
    pub(super) security: Security,
    pub(super) carriage: Carriage,
    pub(super) window: ReceiverConfig,
    pub(super) book: Arc<CreditBook>,
    pub(super) links: Arc<Links>,
    pub(super) news: Tell,
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
enum MeetError {
    #[error("{0:?} is no address: give host:port")]
    Address(String),
    #[error("its peer control can't be reached: {}; is it running, with the same tls.mode?", chain(.0))]
    Control(tonic::transport::Error),
    #[error("{0}; both sides need certificates of one authority, and the same tls.mode")]
    Distrust(Distrust),
    #[error(
        "what answers there is not the peer control of a prefill agent, or has just ended: give the port of its listen.peer (7400)"
    )]
    NoPeer,
    #[error("its peer control did not answer within {PATIENCE:?}")]
    Silent,
    #[error("it refuses: {}", .0.message())]
    Refused(Box<tonic::Status>),
    #[error(
        "its peer control takes only encrypted connections: set the same tls.mode on both sides"
    )]
    TurnedAway,
    #[error("it doesn't fit: {0}; run the same release, model and configuration on both")]
    Differs(String),
    #[error("its name {address} can't be resolved: {source}")]
    Name { address: String, source: io::Error },
    #[error("{0}")]
    Data(#[from] DialError),
    #[error("this agent's identity can't be sent: {0}")]
    Identity(#[from] lynx_protocol::wire::EncodeError),
    #[error("{0} (the budget is transfer.receiveBuffer)")]
    Memory(#[from] BookFull),
}

impl MeetError {
    /// Whether the same attempt can succeed later, with nothing changed by people.
    fn is_retryable(&self) -> bool {
        match self {
            Self::Address(_) | Self::Differs(_) | Self::Identity(_) | Self::TurnedAway => false,
            Self::Refused(status) => status.code() != Code::FailedPrecondition,
            Self::Data(error) => error.is_retryable(),
            Self::Control(_)
            | Self::Distrust(_)
            | Self::NoPeer
            | Self::Silent
            | Self::Name { .. }
            | Self::Memory(_) => true,
        }
    }
}

/// Holds a link to a peer until the task is aborted, or nobody listens.
pub(super) async fn keep_linked(invitation: Invitation) {
    let mut dialler = None;
    let mut pause = FIRST_PAUSE;
    loop {
        let what = match meet(&invitation, &mut dialler).await {
            Ok((meeting, events)) => {
                pause = FIRST_PAUSE;
                if !pass_on(&invitation, meeting, events).await {
                    return;
                }
                None
            }
            Err(error) => {
                pause = (pause * 2).min(if error.is_retryable() {
                    LONGEST_PAUSE
                } else {
                    HOPELESS_PAUSE
                });
                Some(What::Unreachable(error.to_string()))
            }
        };
        if let Some(what) = what
            && !invitation.tell(what)
        {
            return;
        }
        tokio::time::sleep(shortened(pause, random())).await;
    }
}

/// Agents that lost the same peer shouldn't come back in step.
fn shortened(pause: Duration, random: u32) -> Duration {
    pause / 2 + (pause / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// A random number that nobody has to be unable to guess: each hasher of the standard library is keyed at random.
fn random() -> u32 {
    let [a, b, c, d, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

async fn meet(
    invitation: &Invitation,
    dialler: &mut Option<(SocketAddr, Dialler)>,
) -> Result<(Meeting, ReceiverEvents), MeetError> {
    let address = &invitation.address;
    let bad_address = || MeetError::Address(address.clone());
    let (host, _) = address.rsplit_once(':').ok_or_else(bad_address)?;
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|_| bad_address())?
        .connect_timeout(PATIENCE)
        .tcp_nodelay(true);
    let to = security::To::Peer;
    let channel = security::connect(endpoint, to, &invitation.security).await;
    let channel = channel.map_err(|error| match Distrust::behind(&error) {
        Some(why) => MeetError::Distrust(why),
        None => MeetError::Control(error),
    })?;
    let answer = check(&channel, &invitation.identity).await;
    if matches!(answer, Err(MeetError::TurnedAway)) {
        invitation.security.control_failures().count();
    }
    let answer = answer?;
    let callee = answer.callee.unwrap_or_default();
    if let Some(difference) = invitation.identity.difference(&callee) {
        return Err(MeetError::Differs(difference));
    }
    let data = resolve(host, &answer.data_address).await?;
    let dialler = match dialler {
        // The same link in a new epoch.
        Some((to, dialler)) if *to == data => dialler,
        _ => {
            let config = LinkConfig::new(invitation.clock, invitation.identity.to_peer_info())?
                .with_credentials(invitation.security.data().cloned())
                .counting_insecure(invitation.security.data_failures().clone());
            let config = invitation.carriage.carry(config, &invitation.links, None);
            &mut dialler.insert((data, Dialler::new(data, config))).1
        }
    };
    let connected = dialler.try_connect().await?;
    let ticket = connected.ticket().clone();
    let carried = Carried::of(&connected, &invitation.security, &invitation.carriage);
    let (link, events) = connected.into_receiver(invitation.window, &invitation.book)?;
    let draining = answer.draining;
    Ok((
        Meeting {
            channel,
            link,
            ticket,
            carried,
            draining,
        },
        events,
    ))
}

async fn check(channel: &Channel, caller: &Identity) -> Result<CheckResponse, MeetError> {
    let mut client = PeerClient::new(channel.clone());
    let request = CheckRequest {
        caller: Some(caller.to_proto()),
    };
    match tokio::time::timeout(PATIENCE, client.check(request)).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) if security::is_turned_away(&status) => Err(MeetError::TurnedAway),
        Ok(Err(status)) if security::is_no_peer(&status) => Err(MeetError::NoPeer),
        Ok(Err(status)) => Err(MeetError::Refused(Box::new(status))),
        Err(_) => Err(MeetError::Silent),
    }
}

/// `host:port`, where an empty host is `control_host`.
async fn resolve(control_host: &str, data: &str) -> Result<SocketAddr, MeetError> {
    let address = if data.starts_with(':') {
        format!("{control_host}{data}")
    } else {
        data.to_owned()
    };
    let found = tokio::net::lookup_host(&address)
        .await
        .map(|mut all| all.next());
    match found {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(MeetError::Address(address)),
        Err(source) => Err(MeetError::Name { address, source }),
    }
}

/// Passes on what happens until the link is over; whether somebody still listens.
///
/// The peer's checks are beside that, and nothing waits for their answers: a peer that hangs answers none, and its link's end
/// must be told all the same.
async fn pass_on(invitation: &Invitation, meeting: Meeting, events: ReceiverEvents) -> bool {
    let (channel, epoch) = (meeting.channel.clone(), meeting.link.epoch());
    let _counted = invitation.links.receiving(&meeting.link, &meeting.carried);
    if !invitation.tell(What::Up(meeting)) {
        return false;
    }
    // Ends with the link.
    let mut watching = tokio::task::JoinSet::new();
    watching.spawn(watching::watch(
        channel.clone(),
        invitation.identity.clone(),
        (invitation.peer, invitation.news.clone()),
    ));
    tokio::select! {
        listened = pass_events_on(invitation, epoch, events) => listened,
        () = watch_draining(invitation, channel) => false,
    }
}

/// The same without the checks.
async fn pass_events_on(invitation: &Invitation, epoch: Epoch, mut events: ReceiverEvents) -> bool {
    while let Some(event) = events.next().await {
        if !invitation.tell(What::Link(epoch, event)) {
            return false;
        }
    }
    invitation.tell(What::Down(epoch))
}

/// Asks a linked peer again and again whether it drains; ends where nobody listens any more.
async fn watch_draining(invitation: &Invitation, channel: Channel) {
    let mut checks = tokio::time::interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    checks.tick().await;
    loop {
        checks.tick().await;
        // A check that fails says nothing of the link: that has its own heartbeat.
        if let Ok(answer) = check(&channel, &invitation.identity).await
            && !invitation.tell(What::Draining(answer.draining))
        {
            return;
        }
    }
}

impl Invitation {
    /// Whether somebody listens.
    fn tell(&self, what: What) -> bool {
        let peer = self.peer;
        (self.news.0)(News { peer, what })
    }
}

#[cfg(test)]
mod tests;
