//! Which prefill agent is asked for a prompt's KV: the one from which all of it is expected first.
//!
//! For each peer that can be asked
//!
//! ```text
//!  time = (tokens queued there + the prompt's tokens that its cache lacks) x its time per token
//!       + (bytes under way from it + bytes of this transfer) / rate of the link to it
//! ```
//!
//! A sum although computing and sending overlap: what counts is the order of peers, and the maximum of the two would not see
//! the smaller one grow. All peers would send the same bytes, since those are what the *decode* engine lacks; a prefix at a
//! peer saves its computation.
//!
//! What isn't measured yet is taken to be as good as the best that is, of links of the same topology first: so a new peer
//! looks as good as a known one, has nothing queued, and is tried. Peers within [`MARGIN`] of the best are as good as it, for
//! these figures are estimates: of those the nearest is taken, then the one with the longest prefix, then the one with the
//! fewest transfers, now and ever. Where that is equal too, a random number decides, so that many decode agents that all see
//! the same idle peers don't choose the same one. Why not two at random and the better of them: that is for figures that are
//! older than a choice, and a decode agent counts its own choices at once and hears of others' some fifty times a second.
//!
//! A pure function: it is told everything, and remembers nothing.

use std::cmp::Reverse;
use std::hash::Hasher as _;
use std::time::Duration;

use lynx_units::{BitRate, Bytes};

/// How much longer than the best one's a time may be to count as equal: a tenth, and what a loop of either agent may take.
pub(crate) const MARGIN: (f64, Duration) = (0.1, Duration::from_millis(2));
/// Where nobody has measured anything: a link and an engine of the middle sort. It weighs a prefix against the queue on a
/// link before the first transfers, and nothing later.
const FIRST_RATE: BitRate = BitRate::from_megabits_per_second(10_000);
const FIRST_TOKEN_TIME: Duration = Duration::from_micros(100);

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The prompt's tokens.
    pub(crate) prompt_tokens: u32,
    /// What the transfer would send.
    pub(crate) bytes: Bytes,
}

/// How far away a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Distance {
    /// In the same topology domain: rack, block, or whatever the deployment's label says.
    Near,
    /// At least one of the two doesn't say.
    Unknown,
    /// In another one.
    Far,
}

impl Distance {
    /// Between two values of the topology label, empty where there is none.
    pub(crate) fn between(here: &str, there: &str) -> Self {
        if here.is_empty() || there.is_empty() {
            Self::Unknown
        } else if here == there {
            Self::Near
        } else {
            Self::Far
        }
    }

    /// What the operator calls links of this length; empty where it can't tell either.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Near => "same",
            Self::Unknown => "",
            Self::Far => "cross",
        }
    }
}

/// A peer that can be asked: linked, and neither drained nor retired nor tried in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate<K> {
    /// Which.
    pub(crate) peer: K,
    pub(crate) distance: Distance,
    /// How many of the prompt's first tokens its engine has cached.
    pub(crate) cached_tokens: u32,
    /// Tokens that its engine computes before.
    pub(crate) queued_tokens: u64,
    /// What it takes for one; `None` where that isn't known.
    pub(crate) token_time: Option<Duration>,
    /// Bytes that its links send before, or besides.
    pub(crate) pending: Bytes,
    /// What its link carries; `None` where that isn't known.
    pub(crate) rate: Option<BitRate>,
    /// This agent's transfers with it, under way and ever.
    pub(crate) transfers: usize,
    pub(crate) begun: u64,
}

/// What stands for what isn't known.
#[derive(Clone, Debug)]
struct Priors {
    token_time: Duration,
    rates: Vec<(Distance, BitRate)>,
}

impl Priors {
    fn of<K>(candidates: &[Candidate<K>]) -> Self {
        let times = candidates.iter().filter_map(|one| one.token_time);
        let rates = candidates.iter();
        Self {
            token_time: times.min().unwrap_or(FIRST_TOKEN_TIME),
            rates: rates
                .filter_map(|one| Some((one.distance, one.rate?)))
                .collect(),
        }
    }

    /// The best known at this distance, or at any.
    fn rate(&self, distance: Distance) -> BitRate {
        let alike = self.rates.iter().filter(|(of, _)| *of == distance);
        let best = alike.map(|(_, rate)| *rate).max();
        let any = || self.rates.iter().map(|(_, rate)| *rate).max();
        best.or_else(any).unwrap_or(FIRST_RATE)
    }
}

/// When all of the KV would be here, in seconds from now.
fn expected<K>(wanted: &Wanted, from: &Candidate<K>, priors: &Priors) -> f64 {
    // The last token is evaluated in any case.
    let lacking = wanted
        .prompt_tokens
        .saturating_sub(from.cached_tokens)
        .max(1);
    let tokens = from.queued_tokens.saturating_add(u64::from(lacking));
    let token_time = from.token_time.unwrap_or(priors.token_time);
    let rate = from.rate.unwrap_or_else(|| priors.rate(from.distance));
    let bytes = from.pending.get().saturating_add(wanted.bytes.get());
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let (tokens, bits, rate) = (
        tokens as f64,
        bytes as f64 * 8.0,
        rate.bits_per_second().max(1) as f64,
    );
    tokens * token_time.as_secs_f64() + bits / rate
}

/// The one to ask; `None` where there is none. `draw` is random, or at least different for each agent.
pub(crate) fn choose<K: Copy>(
    wanted: &Wanted,
    candidates: &[Candidate<K>],
    draw: u64,
) -> Option<K> {
    let priors = Priors::of(candidates);
    let times: Vec<f64> = candidates
        .iter()
        .map(|one| expected(wanted, one, &priors))
        .collect();
    let best = times.iter().copied().reduce(f64::min)?;
    let enough = best * (1.0 + MARGIN.0) + MARGIN.1.as_secs_f64();
    let good = candidates.iter().zip(times).enumerate();
    let good = good.filter(|(_, (_, time))| *time <= enough);
    let best = good.min_by_key(|(index, (one, _))| {
        let prefix = Reverse(one.cached_tokens);
        (
            one.distance,
            prefix,
            one.transfers,
            one.begun,
            shuffled(draw, *index),
        )
    });
    best.map(|(_, (one, _))| one.peer)
}

/// A number for each place that is in no order.
fn shuffled(draw: u64, index: usize) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write_u64(draw);
    hasher.write_usize(index);
    hasher.finish()
}

#[cfg(test)]
mod tests;
