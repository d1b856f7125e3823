//! The path to a prefill agent: whether it can be reached on both ports, how far it is, and what it carries.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lynx_proto::peer::v1::peer_client::PeerClient;
use lynx_proto::peer::v1::{ProbeAnswer, ProbeFacts, ProbeRequest, probe_answer};
use lynx_transport::{Clock, DialError, Dialler, LinkConfig, ONLY_ENCRYPTED, PeerInfo};
use lynx_units::{BitRate, Bytes};
use tokio::net::UdpSocket;
use tokio::time::Instant;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use super::Finding;
use crate::clock::unix_ns;
use crate::run::chain;
use crate::security::{Distrust, Security, To, connect, is_no_peer, is_turned_away};

/// How long each question may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long padding is waited for: a slow link is measured with what has come by then.
const LONGEST: Duration = Duration::from_secs(2);
/// What is asked for: half a second of a gigabit.
const PADDING: u32 = 64 << 20;
/// How many questions a round trip is the least of.
const ROUND_TRIPS: usize = 8;
/// A difference of clocks that makes traces hard to read.
const SKEW: Duration = Duration::from_millis(50);
/// A window that no path of a data centre outgrows, so that HTTP/2 isn't what is measured.
const WINDOW: u32 = 32 << 20;

/// Why a peer's path isn't known.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("{0:?} is no address: give host:port of its peer control, such as 10.0.0.7:7400")]
    Address(String),
    #[error("there is no answer: {}", chain(.0))]
    Unreachable(tonic::transport::Error),
    #[error("{0}")]
    Distrust(Distrust),
    #[error("what answers there is not the peer control of a prefill agent")]
    NoPeer,
    #[error("it answers: {}", .0.message())]
    Refused(Box<tonic::Status>),
    #[error("it takes only encrypted connections")]
    TurnedAway,
    #[error("no answer within {PATIENCE:?}")]
    Silent,
    #[error("it ended before it said who it is: another release?")]
    Unlike,
}

impl From<tonic::Status> for ProbeError {
    fn from(status: tonic::Status) -> Self {
        if is_turned_away(&status) {
            Self::TurnedAway
        } else if is_no_peer(&status) {
            Self::NoPeer
        } else {
            Self::Refused(Box::new(status))
        }
    }
}

impl From<tonic::transport::Error> for ProbeError {
    fn from(error: tonic::transport::Error) -> Self {
        match Distrust::behind(&error) {
            Some(why) => Self::Distrust(why),
            None => Self::Unreachable(error),
        }
    }
}

impl ProbeError {
    const fn remedy(&self) -> &'static str {
        match self {
            Self::Address(_) => {
                "give the address as it is in `peers` of a decode agent's configuration"
            }
            Self::Unreachable(_) | Self::Silent => {
                "check that the prefill agent runs, that its address and port (listen.peer) are these, and that no policy of the network is between"
            }
            Self::Distrust(_) => {
                "give both agents the same tls.mode and certificates of one authority (docs/security.md); `lynx doctor` there looks at the other's"
            }
            Self::NoPeer => {
                "give the port of its listen.peer, 7400 by default: listen.http and listen.data are others"
            }
            Self::TurnedAway => "set tls.mode and tls.directory here as they are there",
            Self::Refused(_) => "look into the prefill agent's log",
            Self::Unlike => "run the same release on both",
        }
    }
}

/// What a probe has seen.
#[derive(Clone, Debug)]
struct Seen {
    facts: ProbeFacts,
    round_trip: Duration,
    /// The peer's wall clock ahead of this one, as if the way back took half of a round trip; in nanoseconds.
    skew_ns: i128,
    rate: BitRate,
    amount: Bytes,
}

pub(super) async fn examine(address: &str, security: &Security) -> Vec<Finding> {
    let seen = match probe(address, security).await {
        Ok(seen) => seen,
        Err(error) => {
            return vec![Finding::problem(
                "peer",
                format!("{address}: {error}"),
                error.remedy(),
            )];
        }
    };
    let mut findings = judge(address, &seen);
    findings.push(data_port(address, &seen.facts, security).await);
    findings.extend(path_mtu(address).await);
    findings
}

fn judge(address: &str, seen: &Seen) -> Vec<Finding> {
    let name = if seen.facts.name.is_empty() {
        address
    } else {
        &seen.facts.name
    };
    let Seen {
        round_trip,
        rate,
        amount,
        ..
    } = seen;
    let path = format!("{name}: {rate} over {amount}, round trip {round_trip:?}");
    let mut findings = vec![Finding::good("peer", path)];
    let skew = Duration::from_nanos(u64::try_from(seen.skew_ns.unsigned_abs()).unwrap_or(u64::MAX));
    let side = if seen.skew_ns > 0 { "ahead" } else { "behind" };
    let found = format!(
        "the wall clock of {name} is {skew:.1?} {side}, give or take {:.1?}",
        *round_trip / 2
    );
    findings.push(if skew > SKEW + *round_trip / 2 {
        Finding::note(
            "clocks",
            found,
            "keep both nodes' clocks with chrony: their spans don't line up in a trace",
        )
    } else {
        Finding::good("clocks", found)
    });
    if seen.facts.draining {
        findings.push(Finding::note(
            "peer",
            format!("{name} is draining: it takes no new work"),
            "nothing, where it is meant to go",
        ));
    }
    findings
}

async fn probe(address: &str, security: &Security) -> Result<Seen, ProbeError> {
    let bad = || ProbeError::Address(address.to_owned());
    address.rsplit_once(':').ok_or_else(bad)?;
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| bad())?;
    let endpoint = endpoint
        .connect_timeout(PATIENCE)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .tcp_nodelay(true);
    let channel = connect(endpoint, To::Peer, security).await?;
    let (mut facts, mut round_trip, mut skew_ns) = (ProbeFacts::default(), Duration::MAX, 0);
    for _ in 0..ROUND_TRIPS {
        let asked = (Instant::now(), unix_ns());
        let (said, _) = ask(&channel, 0).await?;
        let time = asked.0.elapsed();
        if time < round_trip {
            let half_ns = i128::try_from(time.as_nanos() / 2).unwrap_or(i128::MAX);
            skew_ns = i128::from(said.unix_ns) - i128::from(asked.1) - half_ns;
            (facts, round_trip) = (said, time);
        }
    }
    let (_, padding) = ask(&channel, PADDING).await?;
    let (amount, time) = receive(padding).await?;
    Ok(Seen {
        facts,
        round_trip,
        skew_ns,
        rate: BitRate::from_delivery(amount, time),
        amount,
    })
}

async fn ask(
    channel: &Channel,
    bytes: u32,
) -> Result<(ProbeFacts, Streaming<ProbeAnswer>), ProbeError> {
    let mut client = PeerClient::new(channel.clone());
    let conversation = async {
        let answers = client.probe(ProbeRequest { bytes }).await;
        let mut answers = answers?.into_inner();
        match answers.message().await?.and_then(|answer| answer.kind) {
            Some(probe_answer::Kind::Facts(facts)) => Ok((facts, answers)),
            _ => Err(ProbeError::Unlike),
        }
    };
    let answer = tokio::time::timeout(PATIENCE, conversation).await;
    answer.unwrap_or(Err(ProbeError::Silent))
}

/// The bytes after the first message, and the time they took: until all are there, or it takes too long.
async fn receive(mut answers: Streaming<ProbeAnswer>) -> Result<(Bytes, Duration), ProbeError> {
    let (mut amount, mut first) = (Bytes::ZERO, None::<Instant>);
    let mut last = Duration::ZERO;
    let padding = async {
        while let Some(answer) = answers.message().await? {
            let Some(probe_answer::Kind::Padding(padding)) = answer.kind else {
                continue;
            };
            match first {
                None => first = Some(Instant::now()),
                Some(first) => {
                    amount += Bytes::new(padding.len() as u64);
                    last = first.elapsed();
                }
            }
        }
        Ok::<(), tonic::Status>(())
    };
    match tokio::time::timeout(LONGEST, padding).await {
        Ok(Err(status)) => Err(status.into()),
        Ok(Ok(())) | Err(_) => Ok((amount, last)),
    }
}

/// KV goes over a port of its own, which a policy of the network may have forgotten, and which may be encrypted or not.
async fn data_port(control: &str, facts: &ProbeFacts, security: &Security) -> Finding {
    let announced = &facts.data_address;
    if announced.is_empty() {
        return Finding::problem(
            "peer",
            format!("{control} has no engine, and listens for no links"),
            "start its engine, or look into its log for why it was refused",
        );
    }
    let host = control.rsplit_once(':').map_or("", |(host, _)| host);
    let address = if announced.starts_with(':') {
        format!("{host}{announced}")
    } else {
        announced.clone()
    };
    match dial(&address, security).await {
        Ok(()) => Finding::good(
            "peer",
            format!("links are taken at {address} ({})", security.transport()),
        ),
        Err(DataError::Dial(DialError::Insecure { source, .. })) => Finding::problem(
            "peer",
            format!("links at {address} can't be made: {source}"),
            "give both agents the same tls.mode, and certificates of one CA",
        ),
        Err(DataError::Dial(DialError::Refused { reason, .. })) => Finding::problem(
            "peer",
            format!("links at {address} can't be made: {reason}"),
            "set tls.mode to all here, as it is there",
        ),
        Err(error) => Finding::problem(
            "peer",
            format!("links at {address} can't be reached: {}", chain(&error)),
            "let decode agents reach the port of listen.data too, or announce another address (listen.announcedData)",
        ),
    }
}

/// Why the links' port can't be used.
#[derive(Debug, thiserror::Error)]
enum DataError {
    #[error("its name can't be resolved")]
    Name(#[from] std::io::Error),
    #[error("its name means no address")]
    Nowhere,
    #[error("this side can't introduce itself")]
    Introduction(#[from] lynx_protocol::wire::EncodeError),
    #[error(transparent)]
    Dial(#[from] DialError),
}

/// Dials as a decode agent would, and says who it is, so that the peer answers. It refuses somebody without a model: that, too, is
/// an answer.
async fn dial(address: &str, security: &Security) -> Result<(), DataError> {
    let found = tokio::net::lookup_host(address).await?.next();
    let config = LinkConfig::new(Clock::start(), PeerInfo::new("lynx doctor"))?
        .with_credentials(security.data().cloned());
    let mut dialler = Dialler::new(found.ok_or(DataError::Nowhere)?, config);
    match dialler.try_connect().await {
        Ok(_) | Err(DialError::Incompatible { .. }) => Ok(()),
        Err(DialError::Refused { reason, .. }) if reason.text() != ONLY_ENCRYPTED => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What the kernel knows of the path's MTU.
async fn path_mtu(address: &str) -> Option<Finding> {
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
        .await
        .ok()?;
    socket.connect(address).await.ok()?;
    let mtu = rustix::net::sockopt::ip_mtu(&socket).ok()?;
    Some(Finding::good(
        "MTU",
        format!("the path to {address} takes packets of {mtu} bytes"),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    fn seen(skew_ns: i128) -> Seen {
        Seen {
            facts: ProbeFacts {
                name: "prefill-0".to_owned(),
                ..ProbeFacts::default()
            },
            round_trip: Duration::from_millis(2),
            skew_ns,
            rate: BitRate::from_megabits_per_second(940),
            amount: Bytes::from_mib(63),
        }
    }

    #[test]
    fn clocks_that_differ_by_more_than_the_path_explains_are_noted() {
        let grade = |skew_ns| judge("a:1", &seen(skew_ns))[1].grade;
        assert_eq!(grade(40_000_000), Grade::Good);
        assert_eq!(grade(-52_000_000), Grade::Note);
        assert_eq!(grade(60_000_000_000), Grade::Note);
    }

    #[tokio::test]
    async fn a_peer_that_is_not_there_is_a_problem_with_a_remedy() {
        let security = Security::default();
        let found = &examine("127.0.0.1:1", &security).await[0];
        assert_eq!(found.grade, Grade::Problem);
        assert!(!found.remedy.is_empty());
        let found = &examine("nowhere", &security).await[0];
        assert!(found.found.contains("host:port"), "{}", found.found);
    }

    #[tokio::test]
    async fn what_answers_but_is_no_peer_is_told_from_one_that_is_silent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let another = tokio::spawn(async move {
            let app = axum::Router::new();
            axum::serve(listener, app).await
        });
        let found = &examine(&address, &Security::default()).await[0];
        assert!(
            found.found.contains("not the peer control"),
            "{}",
            found.found
        );
        assert!(found.remedy.contains("7400"), "{}", found.remedy);
        another.abort();
    }
}
