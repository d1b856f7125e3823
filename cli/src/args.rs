//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lynx_agent::command::{AgentArgs, DoctorArgs};
use lynx_units::{BitRate, Width};

use crate::run::Scenario;

/// KV caches across a network, most significant bits first.
#[derive(Debug, Parser)]
#[command(name = "lynx", version, max_term_width = 100)]
pub struct Lynx {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the idea: one prompt, two nodes, a narrow link, and five ways to move the KV cache
    Demo(Demo),
    /// Measure times to tokens, codec, accuracy and link
    #[command(subcommand)]
    Bench(Bench),
    /// Make a model's profile: which bits of its KV cache matter most
    Calibrate(Calibrate),
    /// Run the embedded engine beside an agent
    Engine(Engine),
    /// Run an agent: what the lynx-agent program does
    Agent(Agent),
    /// Look at this machine as an agent would find it, and say what to do about what is found
    ///
    /// Ends with 1 where something is to be fixed.
    Doctor(Doctor),
}

/// What every command that runs the model takes.
#[derive(Clone, Debug, Args)]
pub struct Model {
    /// A llama-architecture GGUF; the default is SmolLM2-135M-Instruct, which `make model` fetches
    #[arg(long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// The model's profile, as `lynx calibrate` makes it; the default model has one built in
    #[arg(long, value_name = "PATH")]
    pub profile: Option<PathBuf>,
    /// Threads of each engine; by default one for each CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// `lynx demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// What to run it on
    #[command(flatten)]
    pub model: Model,
    /// The emulated link's rate, such as 100mbit or 1gbit
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    pub link: BitRate,
    /// Where the emulated link listens; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Whether the prompt's KV lies on the prefill node already
    #[arg(long, default_value = "warm")]
    pub scenario: Scenario,
    /// The prompt's length in tokens
    #[arg(long, value_name = "N", default_value = "2048", value_parser = clap::value_parser!(u32).range(128..))]
    pub prompt_tokens: u32,
    /// A text of your own to ask about; it is taken whole
    #[arg(long, value_name = "PATH")]
    pub prompt_file: Option<PathBuf>,
    /// A question of your own
    #[arg(long, value_name = "TEXT")]
    pub question: Option<String>,
    /// How many tokens to answer with
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(2..=4096))]
    pub tokens: u32,
    /// 0 is greedy; above, tokens are sampled
    #[arg(long, default_value = "0", value_parser = temperature, allow_negative_numbers = true)]
    pub temperature: f32,
    /// The seed of sampling
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// The anchor's mean width in bits, such as 4 or 3.5, or auto: the policy's choice for the link as it was last seen
    #[arg(long, value_name = "BITS", default_value = "4", value_parser = anchor)]
    pub anchor: Anchor,
    /// Where the page with the timeline goes
    #[arg(
        long,
        value_name = "PATH",
        default_value = "lynx-demo.html",
        overrides_with = "report"
    )]
    pub report: PathBuf,
    /// Also write the table's rows as JSON
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
}

/// `lynx bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Times to the first tokens, method by method, over several prompts, lengths and links
    Ttft(Ttft),
    /// Split, merge and tail against memcpy
    Codec(Output),
    /// The kernels on a GPU against a copy within it
    Gpu(Gpu),
    /// How near each method's KV brings the model's output to BF16's
    Accuracy(Accuracy),
    /// The scheduler over real TCP: an anchor behind bulk, and goodput
    Link(Output),
    /// One end of a transfer, for `make bench-peers`: it takes its orders from standard input
    Peer(Peer),
    /// Many clients at once for a while: whether every answer is right, and what grows meanwhile
    Soak(Soak),
    /// Conversations over two prefill and two decode nodes: what it saves that a turn finds the ones before it
    Turns(Turns),
}

/// `lynx bench gpu`.
#[derive(clap::Args, Debug)]
pub struct Gpu {
    /// Where the kernels are that `kernels/cuda/compile --out` has built
    #[arg(long, value_name = "FOLDER")]
    pub kernels: Option<PathBuf>,
    /// Also measure what another process on the GPU pays for splits, and these for it: once with MPS, once without
    #[arg(long)]
    pub sharing: bool,
    /// Be the other process, for so long
    #[arg(long, hide = true, value_name = "SECONDS")]
    pub engine_seconds: Option<u32>,
    /// As little as shows that all of it runs, with a driver that has no GPU
    #[arg(long, hide = true)]
    pub rehearse: bool,
    /// Where the rows go
    #[command(flatten)]
    pub output: Output,
}

/// `lynx bench peer`.
#[derive(Clone, Debug, Args)]
pub struct Peer {
    /// Receive: listen at this address, whoever dials
    #[arg(long, value_name = "ADDRESS", required_unless_present = "send")]
    pub receive: Option<SocketAddr>,
    /// Send: dial the receiver whose hello is the first line of standard input
    #[arg(long, conflicts_with = "receive")]
    pub send: bool,
    /// By TLS, with the tls.crt, tls.key and ca.crt of this directory
    #[arg(long, value_name = "DIRECTORY")]
    pub tls: Option<PathBuf>,
}

/// Where a bench's rows go.
#[derive(Clone, Debug, Args)]
pub struct Output {
    /// Fewer and smaller cases
    #[arg(long)]
    pub quick: bool,
    /// Also write the rows as a JSON array (see docs/bench-rows.md)
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
}

/// `lynx bench ttft`.
#[derive(Debug, Args)]
pub struct Ttft {
    /// What to run it on
    #[command(flatten)]
    pub model: Model,
    /// Where the rows go
    #[command(flatten)]
    pub output: Output,
    /// Only this scenario
    #[arg(long)]
    pub scenario: Option<Scenario>,
    /// Only this length, in tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(128..))]
    pub prompt_tokens: Option<u32>,
    /// Only this link
    #[arg(long, value_name = "RATE")]
    pub link: Option<BitRate>,
    /// How many prompts of each length
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub prompts: Option<u32>,
    /// 0 is greedy; above, tokens are sampled
    #[arg(long, default_value = "0", value_parser = temperature, allow_negative_numbers = true)]
    pub temperature: f32,
}

/// `lynx bench soak`.
#[derive(Debug, Args)]
pub struct Soak {
    /// What to run it on
    #[command(flatten)]
    pub model: Model,
    /// Where the rows go; `--quick` has no effect
    #[command(flatten)]
    pub output: Output,
    /// How many clients ask at a time
    #[arg(long, value_name = "N", default_value = "200", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub clients: u16,
    /// For how long
    #[arg(long, value_name = "N", default_value = "60", value_parser = clap::value_parser!(u16).range(3..))]
    pub seconds: u16,
    /// The emulated link's rate
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    pub link: BitRate,
    /// Tokens of KV for each engine
    #[arg(long, value_name = "N", default_value = "8192", value_parser = clap::value_parser!(u32).range(64..))]
    pub max_tokens: u32,
}

/// `lynx bench turns`.
#[derive(Debug, Args)]
pub struct Turns {
    /// What to run it on
    #[command(flatten)]
    pub model: Model,
    /// Where the rows go
    #[command(flatten)]
    pub output: Output,
    /// The emulated links' rate, each
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    pub link: BitRate,
}

/// `lynx bench accuracy`.
#[derive(Debug, Args)]
pub struct Accuracy {
    /// What to run it on
    #[command(flatten)]
    pub model: Model,
    /// Where the rows go
    #[command(flatten)]
    pub output: Output,
}

/// `lynx calibrate`.
#[derive(Debug, Args)]
pub struct Calibrate {
    /// A llama-architecture GGUF; the default is SmolLM2-135M-Instruct, which `make model` fetches
    #[arg(long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// Threads of the engine; by default one for each CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Texts of the kind the model will read; without any, three built-in ones
    #[arg(long = "text", value_name = "PATH")]
    pub texts: Vec<PathBuf>,
    /// Where the profile goes
    #[arg(long, value_name = "PATH")]
    pub out: PathBuf,
}

/// `lynx engine`.
#[derive(Debug, Args)]
pub struct Engine {
    /// What the engine is for
    #[arg(long)]
    pub role: Role,
    /// A llama-architecture GGUF; the default is SmolLM2-135M-Instruct, which `make model` fetches
    #[arg(long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// The model's name for clients; by default the one in the file
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: Option<String>,
    /// The Unix socket on which the agent listens
    #[arg(long, value_name = "PATH", default_value = "/run/lynx/engine.sock")]
    pub socket: PathBuf,
    /// A folder that agent and engine share, in memory if possible: the KV pool lies in it
    #[arg(long, value_name = "PATH", default_value = "/run/lynx")]
    pub shared_directory: PathBuf,
    /// Tokens of KV for all requests and the prefix cache together; no prompt and its answer are longer
    #[arg(long, value_name = "N", default_value = "8192", value_parser = clap::value_parser!(u32).range(64..))]
    pub max_tokens: u32,
    /// Threads of the engine; by default one for each CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Say what it comes to on standard output, and end with standard input
    #[arg(long, hide = true)]
    pub attended: bool,
}

/// `lynx agent`.
#[derive(Debug, Args)]
pub struct Agent {
    /// What the `lynx-agent` program takes
    #[command(flatten)]
    pub agent: AgentArgs,
    /// Say what it comes to on standard output, and end with standard input
    #[arg(long, hide = true)]
    pub attended: bool,
}

/// `lynx doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// The agent's configuration, a YAML file; its variables count too
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// What to look at
    #[command(flatten)]
    pub args: DoctorArgs,
}

/// What an engine is for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Role {
    /// It computes prompts whose KV an agent sends
    Prefill,
    /// It answers requests whose KV an agent receives
    Decode,
}

/// How wide an anchor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// So wide.
    Fixed(Width),
    /// As the policy says.
    Auto,
}

impl Anchor {
    /// The width, where it is fixed.
    pub const fn width(self) -> Option<Width> {
        match self {
            Self::Fixed(width) => Some(width),
            Self::Auto => None,
        }
    }
}

fn anchor(text: &str) -> Result<Anchor, String> {
    match text {
        "auto" => Ok(Anchor::Auto),
        _ => match text.parse::<Width>() {
            Ok(width) if width.bits() >= 1.0 => Ok(Anchor::Fixed(width)),
            _ => Err("an anchor has 1 to 8 bits, in steps of 0.125; or auto".to_owned()),
        },
    }
}

fn temperature(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(value) if (0.0..=10.0).contains(&value) => Ok(value),
        _ => Err("a temperature is between 0 and 10".to_owned()),
    }
}

impl ValueEnum for Scenario {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Warm, Self::Cold]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.id()))
    }
}
