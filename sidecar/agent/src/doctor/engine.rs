//! The engine's socket and memory, and the agent that may be running here already.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use http::uri::Authority;
use lynx_units::Bytes;
use rustix::fs::statfs;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use super::Finding;
use crate::config::Config;
use crate::run::chain;
use crate::upstream::Upstream;

/// What `statfs` says of a file system in memory (linux/magic.h).
const TMPFS: i64 = 0x0102_1994;
const HUGETLBFS: i64 = 0x958_458f6;
/// How long an answer on this machine may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer that is read.
const LONGEST: u64 = 4096;

pub(super) async fn examine(config: &Config) -> Vec<Finding> {
    let agent = ready(config.listen.http).await;
    let socket = UnixStream::connect(&config.engine.socket).await.map(drop);
    let mut findings = vec![
        self::socket(&config.engine.socket, &socket, agent.is_ok()),
        memory(&config.engine.shared_directory),
    ];
    if let Some(address) = &config.engine.http {
        let trouble = Upstream::new(address.clone()).trouble().await;
        findings.push(server(address, trouble));
    }
    findings.push(self::agent(config, &agent));
    findings.extend(config.transfer.profile.as_deref().map(profile));
    findings
}

/// The engine's own HTTP server.
fn server(address: &Authority, trouble: Option<String>) -> Finding {
    match trouble {
        None => Finding::good(
            "engine",
            format!("its HTTP server at {address} (engine.http) answers"),
        ),
        Some(why) => Finding::problem(
            "engine",
            why,
            "start the engine, and see in its log where it listens; engine.http must say the same",
        ),
    }
}

/// A profile that can't be used keeps the agent from starting.
fn profile(path: &Path) -> Finding {
    match crate::profile::read(path) {
        Ok(profile) => Finding::good(
            "profile",
            format!("{}: the profile of {}", path.display(), profile.name()),
        ),
        Err(error) => Finding::problem(
            "profile",
            chain(&error),
            "give transfer.profile a file that `lynx calibrate` has made of this model, or leave it out",
        ),
    }
}

/// Whether engines can attach at `path`; `runs` says whether an agent of this configuration answers.
fn socket(path: &Path, connected: &io::Result<()>, runs: bool) -> Finding {
    let path = path.display();
    match connected {
        Ok(()) => Finding::good("engine", format!("an agent takes engines at {path}")),
        Err(error) if runs && error.kind() == io::ErrorKind::NotFound => Finding::problem(
            "engine",
            format!("there is no socket at {path}, although the agent runs"),
            "restart the agent: somebody has removed the socket, which it makes when it starts, and no engine can attach any more",
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Finding::note(
            "engine",
            format!("there is no socket at {path}"),
            "start the agent; it makes the socket, and engine and agent must mount the same directory there",
        ),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Finding::problem(
            "engine",
            format!("nobody listens at {path}"),
            "the agent that made it has ended: start it again, it takes the socket over",
        ),
        Err(error) => Finding::problem(
            "engine",
            format!("{path}: {error}"),
            "run the engine as the agent's user, or in its group",
        ),
    }
}

fn memory(directory: &Path) -> Finding {
    let path = directory.display();
    match statfs(directory) {
        Err(error) => Finding::problem(
            "engine",
            format!("{path}: {error}"),
            "mount a directory in memory there, in the engine's container and the agent's (emptyDir with medium: Memory)",
        ),
        Ok(found) => {
            let block = u64::try_from(found.f_bsize).unwrap_or(0);
            let free = Bytes::new(found.f_bavail.saturating_mul(block));
            let text = format!("{free} are free in {path} for an engine's KV pool");
            if matches!(found.f_type, TMPFS | HUGETLBFS) {
                Finding::good("engine", text)
            } else {
                Finding::note(
                    "engine",
                    format!("{text}, which is on a disk"),
                    "mount it in memory (tmpfs; emptyDir with medium: Memory): the kernel writes every page of the pool back",
                )
            }
        }
    }
}

fn agent(config: &Config, answer: &io::Result<String>) -> Finding {
    match answer {
        Err(_) => Finding::note(
            "agent",
            format!("no agent answers at port {}", config.listen.http.port()),
            "nothing, where it isn't running yet",
        ),
        Ok(answer) if answer.starts_with("HTTP/1.1 200") => {
            Finding::good("agent", "it is ready: an engine is attached")
        }
        Ok(answer) => {
            let why = answer.rsplit("\r\n").next().unwrap_or_default().trim();
            let found = format!("it is not ready: {why}");
            Finding::problem("agent", found, until_ready(config, why))
        }
    }
}

/// What makes an agent ready that says this of itself.
fn until_ready(config: &Config, why: &str) -> String {
    if why.starts_with("draining") {
        return "nothing, where it is meant to go; else start it again: a drain has no way back"
            .to_owned();
    }
    format!(
        "start an engine: lynx engine --role {} --socket {} --shared-directory {}; where one runs, its log says more",
        config.role.name(),
        config.engine.socket.display(),
        config.engine.shared_directory.display(),
    )
}

/// What an agent here answers to a readiness probe.
async fn ready(listening: SocketAddr) -> io::Result<String> {
    let address = if listening.ip().is_unspecified() {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), listening.port())
    } else {
        listening
    };
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    tokio::time::timeout(PATIENCE, ask)
        .await
        .unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use lynx_ports::HeldAddress;

    use super::super::Grade;
    use super::*;

    #[test]
    fn a_socket_without_a_listener_is_told_from_none_at_all() {
        let path = Path::new("/x");
        let refused = |kind: io::ErrorKind| socket(path, &Err(kind.into()), false).grade;
        assert_eq!(refused(io::ErrorKind::NotFound), Grade::Note);
        assert_eq!(refused(io::ErrorKind::ConnectionRefused), Grade::Problem);
        assert_eq!(refused(io::ErrorKind::PermissionDenied), Grade::Problem);
        assert_eq!(socket(path, &Ok(()), true).grade, Grade::Good);
        let removed = socket(path, &Err(io::ErrorKind::NotFound.into()), true);
        assert_eq!(removed.grade, Grade::Problem);
        assert!(removed.remedy.contains("restart"), "{removed:?}");
    }

    #[tokio::test]
    async fn a_server_of_the_engines_own_is_asked() {
        let closed = HeldAddress::take().unwrap();
        let address = closed.address();
        let yaml = format!("engine: {{http: 'http://{address}'}}");
        let config = Config::parse(&yaml, &|_| None).unwrap();
        let findings = examine(&config).await;
        let is_it = |found: &&Finding| found.found.contains(&address.to_string());
        let found = findings.iter().find(is_it).unwrap();
        assert_eq!(found.grade, Grade::Problem);
        let config = Config::parse("", &|_| None).unwrap();
        assert_eq!(examine(&config).await.len(), findings.len() - 1);
        let good = server(&"127.0.0.1:8000".parse().unwrap(), None);
        assert_eq!(good.grade, Grade::Good);
    }

    #[test]
    fn an_agent_that_is_not_ready_says_why_and_is_told_what_to_do() {
        let config = Config::parse("{engine: {socket: /x.sock}}", &|_| None).unwrap();
        let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 9\r\n\r\n";
        for (said, remedy) in [
            ("no engine", "--socket /x.sock"),
            ("draining: it goes", "start it again"),
        ] {
            let found = agent(&config, &Ok(format!("{head}{said}\n")));
            assert_eq!(found.grade, Grade::Problem);
            assert_eq!(found.found, format!("it is not ready: {said}"));
            assert!(found.remedy.contains(remedy), "{found:?}");
        }
    }

    #[test]
    fn a_profile_that_is_none_is_a_problem() {
        assert_eq!(profile(Path::new("/no/such")).grade, Grade::Problem);
    }

    #[test]
    fn a_missing_directory_for_the_pool_is_a_problem() {
        assert_eq!(memory(Path::new("/no/such")).grade, Grade::Problem);
    }
}
