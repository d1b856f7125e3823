//! Texts by path made into a configuration. What can't be made is noted, and its default stands in, so that one mistake
//! doesn't hide another.

use std::path::PathBuf;

use lynx_policy::{Bounds, Fidelity, Objective};
use lynx_telemetry::{LogFormat, check_filter};
use lynx_units::Width;
use lynx_verbs::{Choice, Path as RdmaPath};

use super::fields::{find, path};
use super::mistakes::Mistakes;
use super::read::Raw;
use super::{
    Anchor, Carriers, Config, Deployment, Engine, Http, Listen, Operator, Pod, Role, Telemetry,
    Tls, TlsMode, Transfer, Transport, values,
};

/// A Unix socket's path has 108 bytes, and some systems have fewer.
const SOCKET_PATH: usize = 100;

pub(super) fn build(raw: Raw) -> Result<Config, Mistakes> {
    let mut reader = Reader { raw };
    let config = Config {
        role: reader.one(path::ROLE, role),
        pod: Pod {
            name: reader.one(path::POD_NAME, word),
            namespace: reader.one(path::POD_NAMESPACE, word_or_none),
            ip: reader.optional(path::POD_IP, |text| text.parse().ok()),
        },
        deployment: Deployment {
            name: reader.one(path::DEPLOYMENT_NAME, word_or_none),
            generation: reader.one(path::DEPLOYMENT_GENERATION, word_or_none),
            topology: reader.one(path::DEPLOYMENT_TOPOLOGY, word_or_none),
        },
        listen: Listen {
            http: reader.one(path::LISTEN_HTTP, |text| text.parse().ok()),
            drain: reader.one(path::LISTEN_DRAIN, |text| text.parse().ok()),
            peer: reader.one(path::LISTEN_PEER, |text| text.parse().ok()),
            data: reader.one(path::LISTEN_DATA, |text| text.parse().ok()),
            announced_data: reader.optional(path::LISTEN_ANNOUNCED_DATA, values::host_and_port),
        },
        engine: Engine {
            socket: reader.one(path::ENGINE_SOCKET, |text| {
                some_path(text).filter(|_| text.len() <= SOCKET_PATH)
            }),
            shared_directory: reader.one(path::ENGINE_SHARED_DIRECTORY, some_path),
            http: reader.optional(path::ENGINE_HTTP, values::plain_url),
            api_key_file: reader.optional(path::ENGINE_API_KEY_FILE, some_path),
            queue: reader.one(path::ENGINE_QUEUE, |text| number(text, 1, 100_000)),
            kernels: reader.one(path::ENGINE_KERNELS, some_path),
            pinned_memory: reader.one(path::ENGINE_PINNED_MEMORY, values::bytes),
        },
        peers: reader.list(
            path::PEERS,
            "host:port, such as prefill-0:7400",
            values::host_and_port,
        ),
        operator: operator(&mut reader),
        transfer: transfer(&mut reader),
        carriers: carriers(&mut reader),
        tls: tls(&mut reader),
        http: Http {
            max_body: reader.one(path::MAX_BODY, values::bytes),
            body_memory: reader.one(path::BODY_MEMORY, values::bytes),
            max_connections: reader.one(path::MAX_CONNECTIONS, |text| number(text, 1, 100_000)),
            idle_timeout: reader.one(path::IDLE_TIMEOUT, values::duration),
            body_timeout: reader.one(path::BODY_TIMEOUT, values::duration),
            write_timeout: reader.one(path::WRITE_TIMEOUT, values::duration),
            admin: reader.one(path::ADMIN, truth),
        },
        drain_deadline: reader.one(path::DRAIN_DEADLINE, values::duration),
        drain_grace: reader.one(path::DRAIN_GRACE, values::duration_or_none),
        telemetry: Telemetry {
            otlp_endpoint: reader.optional(path::OTLP_ENDPOINT, values::url),
            sampling: reader.one(path::SAMPLING, |text| {
                let ratio: f64 = text.parse().ok()?;
                (0.0..=1.0).contains(&ratio).then_some(ratio)
            }),
            log_format: reader.one(path::LOG_FORMAT, log_format),
            log: reader.one(path::LOG, |text| {
                check_filter(text).ok().map(|()| text.to_owned())
            }),
        },
        ignored_variables: Vec::new(),
    };
    together(&config, &mut reader.raw);
    Mistakes::of(reader.raw.mistakes)?;
    Ok(config)
}

fn transfer(reader: &mut Reader) -> Transfer {
    Transfer {
        fidelity: reader.one(path::FIDELITY, |text| match text {
            "exact" => Some(Fidelity::Exact),
            "int8" => Some(Fidelity::Int8),
            _ => None,
        }),
        objective: reader.one(path::OBJECTIVE, |text| match text {
            "first-tokens" => Some(Objective::FirstTokens),
            "verified" => Some(Objective::Verified),
            _ => None,
        }),
        anchor: anchor(reader),
        profile: reader.optional(path::PROFILE, some_path),
        max_draft_tokens: reader.one(path::MAX_DRAFT_TOKENS, |text| number(text, 0, 64)),
        allow_provisional: reader.one(path::ALLOW_PROVISIONAL, truth),
        deadline: reader.one(path::DEADLINE, values::duration),
        receive_buffer: reader.one(path::RECEIVE_BUFFER, values::bytes),
        merge_buffer: reader.one(path::MERGE_BUFFER, values::bytes),
        send_buffer: reader.one(path::SEND_BUFFER, values::bytes),
        per_peer: reader.one(path::PER_PEER, |text| number(text, 1, 1000)),
        most: reader.one(path::MOST, |text| number(text, 1, 100_000)),
        message_memory: reader.one(path::MESSAGE_MEMORY, values::bytes),
        max_peers: reader.one(path::MAX_PEERS, |text| number(text, 2, 100_000)),
        prefix_blocks: reader.one(path::PREFIX_BLOCKS, |text| number(text, 0, 10_000_000)),
    }
}

fn carriers(reader: &mut Reader) -> Carriers {
    let mut class = |index: usize| RdmaPath {
        service_level: reader.one(path::SERVICE_LEVELS[index], |text| number(text, 0, 7)),
        traffic_class: reader.one(path::TRAFFIC_CLASSES[index], |text| text.parse().ok()),
        ..RdmaPath::default()
    };
    Carriers {
        paths: [class(0), class(1)],
        transport: reader.one(path::TRANSPORT, |text| match text {
            "auto" => Some(Transport::Auto),
            "rdma" => Some(Transport::Rdma),
            "tcp" => Some(Transport::Tcp),
            _ => None,
        }),
        choice: Choice {
            device: reader.optional(path::RDMA_DEVICE, |text| {
                word(text).filter(|text| !text.contains([':', '*', '/']))
            }),
            port: reader.optional(path::RDMA_PORT, |text| number(text, 1, u8::MAX)),
            index: reader.optional(path::RDMA_GID_INDEX, |text| text.parse().ok()),
        },
        rails: reader.one(path::RDMA_RAILS, |text| number(text, 1, 4)),
        memory: reader.one(path::RDMA_MEMORY, values::bytes),
        lent: reader.one(path::RDMA_LENT, values::bytes_or_none),
    }
}

fn operator(reader: &mut Reader) -> Option<Operator> {
    let address = reader.optional(path::OPERATOR_ADDRESS, values::url);
    let name = reader.optional(path::OPERATOR_NAME, |text| text.to_owned().try_into().ok());
    Some(Operator {
        address: address?,
        name,
    })
}

fn tls(reader: &mut Reader) -> Tls {
    Tls {
        mode: reader.one(path::TLS_MODE, |text| match text {
            "off" => Some(TlsMode::Off),
            "control" => Some(TlsMode::Control),
            "all" => Some(TlsMode::All),
            _ => None,
        }),
        directory: reader.optional(path::TLS_DIRECTORY, some_path),
        peer_name: reader.optional(path::TLS_PEER_NAME, word),
    }
}

fn anchor(reader: &mut Reader) -> Anchor {
    let fixed = reader.one(path::ANCHOR_MODE, |text| match text {
        "adaptive" => Some(false),
        "fixed" => Some(true),
        _ => None,
    });
    let bits = reader.one(path::ANCHOR_BITS, values::anchor_width);
    let min = reader.one(path::ANCHOR_MIN_BITS, values::anchor_width);
    let max = reader.one(path::ANCHOR_MAX_BITS, values::anchor_width);
    if fixed {
        return Anchor::Fixed(bits);
    }
    if let Some(bounds) = Bounds::new(min, max) {
        return Anchor::Adaptive(bounds);
    }
    let what = format!("it is {min}, more than transfer.anchor.maxBits, which is {max}");
    reader.raw.mistake(path::ANCHOR_MIN_BITS, &what);
    Anchor::Fixed(Width::FULL)
}

/// What no field can be wrong in alone.
fn together(config: &Config, raw: &mut Raw) {
    if config.role == Role::Prefill && !config.peers.is_empty() {
        raw.mistake(
            path::PEERS,
            "only a decode agent has peers: decode agents call prefill agents",
        );
    }
    if config.carriers.transport == Transport::Tcp && config.carriers.choice != Choice::default() {
        raw.mistake(
            path::RDMA_DEVICE,
            "with transfer.transport tcp no card is used: leave device, port and gidIndex out, or take auto or rdma",
        );
    }
    if config.tls.mode != TlsMode::Off && config.tls.directory.is_none() {
        raw.mistake(
            path::TLS_DIRECTORY,
            "it is needed where tls.mode isn't off: nothing goes in clear that was meant to be encrypted",
        );
    }
    let is_secure = config.operator.as_ref().map(Operator::is_secure);
    if config.tls.mode == TlsMode::Off && is_secure == Some(true) {
        raw.mistake(
            path::OPERATOR_ADDRESS,
            "https needs tls.mode control or all, and tls.directory",
        );
    }
    let is_named = config
        .operator
        .as_ref()
        .is_some_and(|one| one.name.is_some());
    if is_named && is_secure == Some(false) {
        raw.mistake(
            path::OPERATOR_NAME,
            "in clear the operator shows no name: leave it out, or take https for operator.address",
        );
    }
    if config.operator.is_some() {
        if config.deployment.name.is_empty() {
            raw.mistake(
                path::DEPLOYMENT_NAME,
                "it is needed where there is an operator.address",
            );
        }
        if config.role == Role::Prefill && config.pod.ip.is_none() {
            raw.mistake(
                path::POD_IP,
                "it is needed where there is an operator.address: the operator tells it to decode agents",
            );
        }
    }
    let Listen {
        http,
        drain,
        peer,
        data,
        ..
    } = config.listen;
    let mut taken = vec![(path::LISTEN_HTTP, http), (path::LISTEN_DRAIN, drain)];
    if config.role == Role::Prefill {
        taken.extend([(path::LISTEN_PEER, peer), (path::LISTEN_DATA, data)]);
    }
    for (index, (path, address)) in taken.iter().enumerate() {
        if let Some((other, _)) = taken
            .get(..index)
            .into_iter()
            .flatten()
            .find(|(_, earlier)| earlier == address && address.port() != 0)
        {
            raw.mistake(path, &format!("it is {address}, which {other} has already"));
        }
    }
}

struct Reader {
    raw: Raw,
}

impl Reader {
    /// The field's value, or its default.
    fn one<T>(&mut self, path: &'static str, parse: impl Fn(&str) -> Option<T>) -> T {
        let field = find(path).expect("every path is a field's");
        if let Some(said) = self.raw.said.get(path) {
            let text = said.texts.first().map_or("", String::as_str);
            match parse(text) {
                Some(value) => return value,
                None => {
                    let what = format!("it is {text:?}, and may be {}", field.allowed);
                    let at = said.at.clone();
                    self.raw.mistake(&at, &what);
                }
            }
        }
        parse(field.default).expect("every default is allowed")
    }

    /// The field's value, or nothing where nothing or an empty text was said.
    fn optional<T>(&mut self, path: &'static str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.one(path, |text| {
            if text.is_empty() {
                Some(None)
            } else {
                parse(text).map(Some)
            }
        })
    }

    /// Every entry of the list.
    fn list<T>(
        &mut self,
        path: &'static str,
        each: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        let Some(said) = self.raw.said.get(path).cloned() else {
            return Vec::new();
        };
        let mut values = Vec::new();
        for text in &said.texts {
            match parse(text) {
                Some(value) => values.push(value),
                None => self.raw.mistake(
                    &said.at,
                    &format!("an entry is {text:?}, and may be {each}"),
                ),
            }
        }
        values
    }
}

fn role(text: &str) -> Option<Role> {
    match text {
        "prefill" => Some(Role::Prefill),
        "decode" => Some(Role::Decode),
        _ => None,
    }
}

fn log_format(text: &str) -> Option<LogFormat> {
    match text {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    }
}

fn truth(text: &str) -> Option<bool> {
    text.parse().ok()
}

fn number<T: std::str::FromStr + PartialOrd>(text: &str, min: T, max: T) -> Option<T> {
    text.parse()
        .ok()
        .filter(|number| (min..=max).contains(number))
}

fn word(text: &str) -> Option<String> {
    word_or_none(text).filter(|word| !word.is_empty())
}

fn word_or_none(text: &str) -> Option<String> {
    let fits = text.len() <= 253 && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    fits.then(|| text.to_owned())
}

fn some_path(text: &str) -> Option<PathBuf> {
    (!text.is_empty() && !text.contains('\0')).then(|| PathBuf::from(text))
}
