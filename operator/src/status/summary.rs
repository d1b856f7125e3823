//! What agents report, as a status tells it: slowly.
//!
//! Rates and shares change with every report, and a status that followed them would keep the API server busy for nothing.
//! So a figure is replaced only when it has changed enough, and not twice in half a minute; what is an alarm (a link that is
//! down, another transport) is told at once.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use lynx_crds::spec::{TlsMode, Transport};
use lynx_crds::{AnchorStatus, Bits, LinkClassStatus, LinkStatus, LynxDeployment};
use lynx_governor::width::Decision;
use lynx_units::{BitRate, Timestamp};

use super::conditions::Verdict;
use super::scaling::{Scaler, Scaling};
use crate::scaling::quantity::number;
use crate::streams::registry::LinkSeen;

/// A figure isn't replaced more often.
const PACE: Duration = Duration::from_secs(30);
/// By which share a rate must have changed.
const RATE_STEP: f64 = 0.1;
/// The reason where links carry far less than promised.
const SLOW: &str = "BelowPromise";
/// A link is slow below this share of what was promised, and no longer above that one.
const ENOUGH: f64 = 0.5;
const AGAIN_ENOUGH: f64 = 0.6;
/// How an agent begins to say that a peer is of another model, layout, tensor-parallel size or release.
const DIFFERS: &str = "it doesn't fit: ";
/// By how many hundredths an acceptance must have changed.
const ACCEPTANCE_STEP: u8 = 5;

/// What is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The slowest link.
    pub link: Option<LinkStatus>,
    /// The slowest link of each class.
    pub links: Vec<LinkClassStatus>,
    /// The condition `LinkReady`.
    pub link_verdict: Verdict,
    /// The width.
    pub anchor: Option<AnchorStatus>,
    /// Of drafted tokens.
    pub acceptance_percent: Option<u8>,
    /// How many pods there should be.
    pub scaling: Scaling,
    figures: Option<Timestamp>,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            link: None,
            links: Vec::new(),
            link_verdict: Verdict::unknown("NotMeasured", "no agent has reported a link yet"),
            anchor: None,
            acceptance_percent: None,
            scaling: Scaling::default(),
            figures: None,
        }
    }
}

/// What the summary follows.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The deployment.
    pub object: &'a LynxDeployment,
    /// Its links.
    pub links: &'a [LinkSeen],
    /// Its anchor.
    pub decision: Decision,
    /// The share of drafted tokens that were right.
    pub accepted: Option<f64>,
}

impl Summary {
    /// What was told before this process began.
    pub fn resume(object: &LynxDeployment) -> Self {
        let status = object.status.clone().unwrap_or_default();
        Self {
            link: status.link,
            links: status.links,
            anchor: status.anchor,
            acceptance_percent: status.acceptance_percent,
            scaling: Scaling::resume(object),
            ..Self::default()
        }
    }

    /// Follows the facts. True where something that is told has changed.
    pub fn follow(&mut self, facts: &Facts<'_>, now: Timestamp, wall: &Time) -> bool {
        let before = self.clone();
        let was_slow = self.link_verdict.reason == SLOW;
        self.link_verdict = verdict(facts.object, facts.links, was_slow);
        self.follow_anchor(facts.decision, wall);
        let due = self
            .figures
            .is_none_or(|last| now.saturating_since(last) >= PACE);
        let link = slowest(facts.links);
        let links = classes(facts.links);
        let kinds = |links: &[LinkClassStatus]| -> Vec<_> {
            let each = links.iter();
            each.map(|link| (link.class.clone(), link.transport.clone()))
                .collect()
        };
        let alarm = transport(self.link.as_ref()) != transport(link.as_ref())
            || kinds(&self.links) != kinds(&links);
        let rates = (
            self.link.as_ref().map(|link| link.rate_bits_per_second),
            link.as_ref().map(|link| link.rate_bits_per_second),
        );
        if link.is_some() && (alarm || due && differs(rates)) {
            self.link = link;
            self.links = links;
            self.figures = Some(now);
        }
        let accepted = facts.accepted.map(percent);
        if due && accepted.is_some_and(|now| far(self.acceptance_percent, now)) {
            self.acceptance_percent = accepted;
            self.figures = Some(now);
        }
        let told = |summary: &Self| Self {
            figures: None,
            ..summary.clone()
        };
        told(&before) != told(self)
    }

    /// Follows who scales the pools, and how. True where something that is told has changed.
    pub fn follow_scaling(&mut self, scaler: &Scaler, now: Timestamp, wall: &Time) -> bool {
        self.scaling.follow(scaler, now, wall)
    }

    fn follow_anchor(&mut self, decision: Decision, wall: &Time) {
        let Some(bits) = Bits::from_width(decision.width) else {
            return;
        };
        let reason = decision.reason.as_str();
        let same = self.anchor.as_ref().is_some_and(|anchor| {
            // On the way or arrived is no news; that a link was measured is.
            anchor.bits == bits
                && (anchor.reason == "NoLinkMeasured") == (reason == "NoLinkMeasured")
                && (anchor.reason == "Fixed") == (reason == "Fixed")
        });
        if !same {
            self.anchor = Some(AnchorStatus {
                bits,
                reason: reason.into(),
                since: Some(wall.clone()),
            });
        }
    }
}

fn verdict(object: &LynxDeployment, links: &[LinkSeen], was_slow: bool) -> Verdict {
    let up: Vec<_> = links.iter().filter(|link| link.up).collect();
    let differs = links.iter().find(|link| link.error.contains(DIFFERS));
    if let Some(link) = differs {
        return Verdict::no(
            "PeersDiffer",
            format!("a prefill and a decode agent never pair: {}", link.error),
        );
    }
    if let Some(down) = links.iter().find(|link| !link.up && !link.error.is_empty())
        && up.is_empty()
    {
        return Verdict::no("LinkDown", format!("no link is up: {}", down.error));
    }
    if up.is_empty() {
        return Verdict::unknown("NotMeasured", "no agent has reported a link yet");
    }
    let spec = &object.spec;
    let wanted = spec.transfer.transport == Transport::Rdma
        || spec.transfer.transport == Transport::Auto
            && spec.prefill.pool.rdma.is_some()
            && spec.decode.pool.rdma.is_some();
    if wanted && let Some(tcp) = up.iter().find(|link| !is_rdma(link)) {
        return Verdict::no(
            "TcpInUse",
            format!(
                "RDMA was asked for, and TCP is in use: {}",
                why_tcp(object, tcp)
            ),
        );
    }
    if up.iter().all(|link| link.rate.bits_per_second() == 0) {
        return Verdict::unknown("NotMeasured", "links are up, and none was measured yet");
    }
    if let Some(slow) = slow(object, &up, was_slow) {
        return Verdict::no(SLOW, slow);
    }
    if up.len() < links.len() {
        return Verdict::yes(
            "SomeLinksDown",
            "links are up and measured, but not all of them",
        );
    }
    Verdict::yes("Measured", "links are up and measured")
}

/// Why a link has no RDMA; an agent that doesn't look for a card says nothing of it.
fn why_tcp<'a>(object: &LynxDeployment, link: &'a LinkSeen) -> &'a str {
    let transfer = &object.spec.transfer;
    let is_encrypted = transfer.tls.mode != TlsMode::Disabled;
    match link.error.as_str() {
        "" if is_encrypted && transfer.transport == Transport::Auto => {
            "with spec.transfer.tls, Auto is TCP, since RDMA isn't encrypted: say TCP, or RDMA, which leaves KV in clear"
        }
        "" => {
            "no agent says why: their image is one without RDMA, or no device is seen in their pods (docs/rdma.md)"
        }
        why => why,
    }
}

/// What of the links that are up is far below what the spec says of their class.
fn slow(object: &LynxDeployment, up: &[&LinkSeen], was_slow: bool) -> Option<String> {
    let promised = object.spec.transfer.promised_rate.as_ref()?;
    let enough = if was_slow { AGAIN_ENOUGH } else { ENOUGH };
    let far_below = |link: &&&LinkSeen| {
        let promise = if link.class == "same" {
            promised.same.as_ref()
        } else {
            promised.cross.as_ref().or(promised.same.as_ref())
        };
        let promise = promise.and_then(|rate| number(&rate.0));
        #[expect(clippy::cast_precision_loss, reason = "a share of a rate")]
        let rate = link.rate.bits_per_second() as f64;
        promise.is_some_and(|promise| rate > 0.0 && rate < promise * enough)
    };
    let link = up.iter().filter(far_below).min_by_key(|link| link.rate)?;
    let class = match link.class {
        "" => "",
        class => &format!(" of the class {class}"),
    };
    Some(format!(
        "a link{class} carries {} at best, far below what spec.transfer.promisedRate says: look for another device, a wrong route, or others' traffic",
        people(link.rate)
    ))
}

fn is_rdma(link: &LinkSeen) -> bool {
    link.transport.eq_ignore_ascii_case("rdma")
}

/// The slowest link of each class.
fn classes(links: &[LinkSeen]) -> Vec<LinkClassStatus> {
    let classes = [("same", "same"), ("cross", "cross"), ("", "any")];
    let one = |(class, name): (&str, &str)| {
        let of: Vec<_> = links
            .iter()
            .filter(|link| link.class == class)
            .cloned()
            .collect();
        let slowest = slowest(&of)?;
        Some(LinkClassStatus {
            class: name.into(),
            rate_bits_per_second: slowest.rate_bits_per_second,
            transport: slowest.transport,
            summary: slowest.summary,
        })
    };
    classes.into_iter().filter_map(one).collect()
}

fn slowest(links: &[LinkSeen]) -> Option<LinkStatus> {
    let measured = links
        .iter()
        .filter(|link| link.up && link.rate.bits_per_second() > 0);
    let link = measured.min_by_key(|link| link.rate)?;
    let transport = if is_rdma(link) { "RDMA" } else { "TCP" };
    Some(LinkStatus {
        rate_bits_per_second: i64::try_from(link.rate.bits_per_second()).unwrap_or(i64::MAX),
        transport: transport.into(),
        summary: format!("{} {transport}", people(link.rate)),
    })
}

/// Two digits are enough for people.
fn people(rate: BitRate) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let mut value = rate.bits_per_second() as f64;
    let mut unit = "bit/s";
    for larger in ["kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"] {
        if value >= 1000.0 {
            value /= 1000.0;
            unit = larger;
        }
    }
    if value < 10.0 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

fn transport(link: Option<&LinkStatus>) -> Option<&str> {
    link.map(|link| link.transport.as_str())
}

fn differs(rates: (Option<i64>, Option<i64>)) -> bool {
    match rates {
        (Some(told), Some(now)) => {
            #[expect(clippy::cast_precision_loss, reason = "a share of ten percent")]
            let (told, now) = (told as f64, now as f64);
            (now - told).abs() > told * RATE_STEP
        }
        (told, now) => told != now,
    }
}

fn far(told: Option<u8>, now: u8) -> bool {
    told.is_none_or(|told| told.abs_diff(now) >= ACCEPTANCE_STEP)
}

fn percent(share: f64) -> u8 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 0 to 100"
    )]
    {
        (share * 100.0).round().clamp(0.0, 100.0) as u8
    }
}
