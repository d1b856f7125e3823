//! The operator, as a process.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lynx_ports::HeldAddress;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::figures::Figures;
use crate::node::NAMESPACE;

/// What times in /proc are counted in.
const TICKS_PER_SECOND: f64 = 100.0;
const POLL: Duration = Duration::from_millis(100);

/// Killed when it is dropped.
pub(crate) struct Operator {
    child: Child,
    http: SocketAddr,
    pub(crate) agents: SocketAddr,
    _held: [HeldAddress; 2],
}

/// What it costs its machine.
pub(crate) struct Memory {
    pub(crate) now_mib: f64,
    pub(crate) peak_mib: f64,
    pub(crate) processor_seconds: f64,
}

impl Operator {
    /// Returns when it leads.
    pub(crate) async fn start(program: &Path) -> Result<Self, Box<dyn Error>> {
        let held = [HeldAddress::take()?, HeldAddress::take()?];
        let [http, agents] = held.each_ref().map(HeldAddress::address);
        let child = Command::new(program)
            .arg("run")
            .env("RUST_LOG", "warn")
            .env("POD_NAME", "measured")
            .env("POD_NAMESPACE", NAMESPACE)
            .env("POD_IP", "127.0.0.1")
            .env("LYNX_OPERATOR_LISTEN_HTTP", http.to_string())
            .env("LYNX_OPERATOR_LISTEN_AGENTS", agents.to_string())
            .env("LYNX_OPERATOR_AGENTS_URL", format!("http://{agents}"))
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let operator = Self {
            child,
            http,
            agents,
            _held: held,
        };
        let leads = |figures: Figures| figures.gauge("lynx_operator_leading") > 0.0;
        while !operator.figures().await.is_ok_and(leads) {
            tokio::time::sleep(POLL).await;
        }
        Ok(operator)
    }

    pub(crate) async fn figures(&self) -> Result<Figures, Box<dyn Error>> {
        let mut stream = TcpStream::connect(self.http).await?;
        let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(Figures::parse(&answer))
    }

    pub(crate) fn memory(&self) -> Result<Memory, Box<dyn Error>> {
        let id = self.child.id().ok_or("the operator has ended")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let mib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            number
                .and_then(|text| text.parse::<f64>().ok())
                .unwrap_or(0.0)
                / 1024.0
        };
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        let after = stat.rsplit(')').next().unwrap_or_default();
        // User and system time are the 14th and 15th field; the name was the second.
        let times = after.split_whitespace().skip(11).take(2);
        let ticks: f64 = times.filter_map(|text| text.parse::<f64>().ok()).sum();
        Ok(Memory {
            now_mib: mib("VmRSS:"),
            peak_mib: mib("VmHWM:"),
            processor_seconds: ticks / TICKS_PER_SECOND,
        })
    }
}
