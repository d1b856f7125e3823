//! What every run has to have done, whatever happened to it.

use std::collections::BTreeMap;
use std::time::Duration;

use lynx_protocol::{receiver, sender};

use super::fan::{Ended, Fan};
use super::knobs::{self, Knob};
use super::pair::Pair;
use super::sending::Sending;

/// Longest run: the longest lifetime of a transfer and some more.
pub(crate) const END: Duration = Duration::from_secs(70);

/// Which simulation a seed is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Pair,
    Fan,
}

/// Prints how to repeat a run that panics.
struct Replay<'a>(Of, u64, &'a [Knob]);

impl Drop for Replay<'_> {
    #[expect(
        clippy::print_stderr,
        reason = "the command is for whoever reads the failed test"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(of, seed, knobs) = self;
            let knobs: Vec<String> = knobs.iter().map(|knob| format!("{knob:?}")).collect();
            eprintln!(
                "replay: LYNX_RUN={of:?} LYNX_SEED={seed} LYNX_KNOBS={} cargo test -p lynx-protocol --test simulation -- --ignored replay",
                knobs.join(",")
            );
        }
    }
}

/// What runs came to, by name.
#[derive(Debug, Default)]
pub(crate) struct Endings(pub(crate) BTreeMap<String, u32>);

impl Endings {
    fn add(&mut self, name: &str, n: u64) {
        if n > 0 {
            *self.0.entry(name.to_owned()).or_default() += 1;
        }
    }

    pub(crate) fn join(&mut self, other: Self) {
        for (name, n) in other.0 {
            *self.0.entry(name).or_default() += n;
        }
    }
}

/// Runs a seed, of either kind.
pub(crate) fn check(of: Of, seed: u64, knobs: &[Knob], endings: &mut Endings) {
    let replay = Replay(of, seed, knobs);
    match of {
        Of::Pair => check_pair(seed, knobs, endings),
        Of::Fan => check_fan(seed, knobs),
    }
    drop(replay);
}

fn check_pair(seed: u64, knobs: &[Knob], endings: &mut Endings) {
    let (mut pair, _) = knobs::pair(seed, knobs);
    pair.run(END);
    assert!(
        pair.is_done(),
        "not done after {END:?}: {:?}",
        pair.sending.ended
    );
    let harmless = knobs.iter().all(|knob| knob.is_harmless());
    check_link(&pair.sending, &pair.receiving.ended, harmless);
    let Pair { receiving, .. } = &pair;
    for (transfer, (_, at)) in &receiving.ended {
        let latest = receiving.process.runs(receiving.deadlines[transfer]);
        assert!(*at <= latest, "the receiving side missed a deadline");
    }
    count(&pair, endings);
}

/// Each transfer ended once, in time, and on both sides alike where it is complete.
fn check_link(sending: &Sending, received: &Ended, harmless: bool) {
    for job in &sending.jobs {
        let Some(&opened) = sending.opened.get(&job.transfer) else {
            assert!(sending.broken.is_some(), "never opened");
            continue;
        };
        let (event, at) = &sending.ended[&job.transfer];
        let latest = sending.process.runs(opened + job.lifetime);
        assert!(*at <= latest, "the sending side missed a deadline");
        let complete = matches!(event, sender::Event::Complete(_));
        if complete {
            let (event, _) = &received[&job.transfer];
            assert!(matches!(event, receiver::Event::Complete(_)));
        }
        if harmless {
            assert!(complete, "{event:?} over a harmless network");
        }
    }
}

fn count(pair: &Pair, endings: &mut Endings) {
    for (event, _) in pair.sending.ended.values() {
        match event {
            sender::Event::Complete(_) => endings.add("complete", 1),
            sender::Event::Cancelled(..) => endings.add("cancelled", 1),
            sender::Event::Failed(_, reason) => endings.add(reason.code().name(), 1),
            sender::Event::Accepted(_) | sender::Event::Broken(_) => {}
        }
    }
    let broken = [&pair.sending.broken, &pair.receiving.broken];
    for (reason, _) in broken.into_iter().flatten() {
        endings.add(&format!("broken: {}", reason.code().name()), 1);
    }
    let (sent, received) = (pair.sending.sender.stats(), pair.receiving.receiver.stats());
    endings.add("late frame", sent.late_frames + received.late_frames);
    endings.add("late chunk", received.late_chunks);
    endings.add("corrupt chunk", received.corrupt);
    endings.add("stale frame", sent.stale_frames + received.stale_frames);
    assert_eq!(received.duplicates, 0);
    // Each is counted as it is dropped, unless the link is over before it arrives.
    let (to_sender, to_receiver) = (pair.receiving.old.said, pair.sending.old.said);
    assert!(sent.stale_frames <= to_sender && received.stale_frames <= to_receiver);
    if pair.sending.broken.is_none() && pair.is_done() && to_receiver > 100 {
        assert!(received.stale_frames > 0);
    }
}

fn check_fan(seed: u64, knobs: &[Knob]) {
    let (mut fan, bound) = knobs::fan(seed, knobs);
    fan.run(END);
    assert!(fan.is_done(), "not done after {END:?}");
    let harmless = knobs.iter().all(|knob| knob.is_harmless());
    for (sending, received) in &fan.past {
        check_link(sending, received, false);
    }
    for link in fan.links.iter().flatten() {
        check_link(&link.sending, &link.receiving.ended, harmless);
    }
    if harmless {
        assert!(
            fan.time <= bound,
            "took until {:?}, which is more than {bound:?}: a link starved",
            fan.time
        );
    }
    check_empty(fan);
}

/// With the last link, all memory has come back.
fn check_empty(fan: Fan) {
    let book = fan.book.clone();
    drop(fan);
    assert_eq!(book.left(), book.budget());
}
