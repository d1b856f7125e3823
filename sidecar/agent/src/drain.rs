//! Going away without breaking what is under way.
//!
//! One handle, shared by everything that takes or ends work: the pod's preStop hook and the operator begin the drain, the
//! roles ask before they take something new, and whoever waits for the end looks at the count. Clients don't know at once:
//! for a while after the beginning of a drain, its grace, new work is still taken, while probes and peers are told already,
//! and until that is over no drain is. It refuses to end anything
//! itself: what is in flight at the deadline is ended by the process's end, as it would be without a drain.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Whether this agent is on its way out, and what it still has in flight. Clones share both.
#[derive(Clone, Debug)]
pub struct Drain {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// How long new work is taken in spite of a drain.
    grace: Duration,
    /// When waiting ends.
    deadline: watch::Sender<Deadline>,
    in_flight: watch::Sender<u32>,
}

/// Who wants the drain, and until when it waits for them.
#[derive(Clone, Copy, Debug, Default)]
struct Deadline {
    /// This process is ending: that can't be taken back.
    ending: Option<Window>,
    /// The operator's order: that can.
    ordered: Option<Window>,
}

/// One drain's time.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// New work is taken until then.
    closes: Instant,
    /// What is in flight is waited for until then.
    ends: Instant,
}

impl Deadline {
    /// `None` while the agent takes work.
    fn soonest(self) -> Option<Window> {
        self.ending
            .into_iter()
            .chain(self.ordered)
            .reduce(|one, other| Window {
                closes: one.closes.min(other.closes),
                ends: one.ends.min(other.ends),
            })
    }
}

/// A piece of work in flight, until it is dropped.
#[derive(Debug)]
pub struct InFlight {
    shared: Arc<Shared>,
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drain {
    /// An agent that takes work and has none, and refuses new work as soon as a drain begins.
    pub fn new() -> Self {
        Self::with_grace(Duration::ZERO)
    }

    /// The same, but new work is still taken for `grace` after a drain has begun.
    pub fn with_grace(grace: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                grace,
                deadline: watch::Sender::new(Deadline::default()),
                in_flight: watch::Sender::new(0),
            }),
        }
    }

    /// Takes no new work from now on, and lets what is in flight end for at most `patience`. Begun again, the earlier
    /// deadline holds.
    pub fn begin(&self, patience: Duration) {
        let window = self.window(patience);
        self.shared.deadline.send_if_modified(|current| {
            let sooner = current
                .ending
                .is_none_or(|current| window.ends < current.ends);
            if sooner {
                let closes = current.ending.map_or(window.closes, |begun| begun.closes);
                current.ending = Some(Window { closes, ..window });
            }
            sooner
        });
    }

    /// What the operator wants: a drain of this patience, or none any more. What [`begin`](Self::begin) began stays.
    pub fn order(&self, patience: Option<Duration>) {
        let ordered = patience.map(|patience| self.window(patience));
        self.shared.deadline.send_modify(|current| {
            // Said again, it is the same drain: new work isn't taken for longer.
            let begun = current.ordered.map(|before| before.closes);
            current.ordered = ordered.map(|window| Window {
                closes: begun.unwrap_or(window.closes),
                ..window
            });
        });
    }

    fn window(&self, patience: Duration) -> Window {
        /// Longer than any pod waits; a moment that an instant can hold.
        const LONGEST: Duration = Duration::from_secs(7 * 86_400);
        let (now, patience) = (Instant::now(), patience.min(LONGEST));
        Window {
            closes: now + self.shared.grace.min(patience),
            ends: now + patience,
        }
    }

    /// Whether new work should go elsewhere.
    pub fn is_draining(&self) -> bool {
        self.shared.deadline.borrow().soonest().is_some()
    }

    /// Whether new work is taken: also for a while after a drain has begun.
    pub fn admits(&self) -> bool {
        let soonest = self.shared.deadline.borrow().soonest();
        soonest.is_none_or(|window| Instant::now() < window.closes)
    }

    /// How much is in flight, where work that may still come in spite of a drain counts as one piece.
    pub fn left(&self) -> u32 {
        let to_come = u32::from(self.is_draining() && self.admits());
        self.shared.in_flight.borrow().saturating_add(to_come)
    }

    /// Counts a piece of new work as in flight until the guard is dropped; `None` where a drain admits none: refuse it.
    pub fn enter(&self) -> Option<InFlight> {
        if !self.admits() {
            return None;
        }
        self.shared.in_flight.send_modify(|count| *count += 1);
        Some(InFlight {
            shared: Arc::clone(&self.shared),
        })
    }

    /// How much is in flight, now and from now on.
    pub fn in_flight(&self) -> watch::Receiver<u32> {
        self.shared.in_flight.subscribe()
    }

    /// Waits until a drain begins.
    pub async fn begun(&self) {
        let mut deadline = self.shared.deadline.subscribe();
        // The sender lives as long as `self`.
        let begun = |deadline: &Deadline| deadline.soonest().is_some();
        drop(deadline.wait_for(begun).await);
    }

    /// Waits until a drain has begun and nothing is in flight any more, or its deadline has passed; how much is in flight
    /// then.
    pub async fn finished(&self) -> u32 {
        let mut deadline = self.shared.deadline.subscribe();
        let mut in_flight = self.in_flight();
        loop {
            self.begun().await;
            let Some(window) = deadline.borrow_and_update().soonest() else {
                continue;
            };
            tokio::select! {
                () = tokio::time::sleep_until(window.closes), if self.admits() => {}
                // Unless the order was taken back meanwhile.
                _ = in_flight.wait_for(|count| *count == 0), if !self.admits() => {
                    if self.is_draining() {
                        break;
                    }
                }
                () = tokio::time::sleep_until(window.ends) => break,
                // An earlier deadline, or none any more.
                _ = deadline.changed() => {}
            }
        }
        *self.shared.in_flight.borrow()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shared.in_flight.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod matrix;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_when_the_last_work_does() {
        let drain = Drain::new();
        let (one, two) = (drain.enter().unwrap(), drain.enter().unwrap());
        drain.begin(Duration::from_secs(60));
        assert!(drain.is_draining() && drain.enter().is_none());
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move { drain.finished().await }
        });
        drop(one);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(two);
        assert_eq!(waiting.await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_at_its_deadline_and_says_what_is_left() {
        let drain = Drain::new();
        let work = drain.enter();
        let start = Instant::now();
        drain.begin(Duration::from_secs(60));
        drain.begin(Duration::from_secs(3600));
        drain.begin(Duration::from_secs(30));
        assert_eq!(drain.finished().await, 1);
        assert_eq!(start.elapsed().as_secs(), 30);
        drop(work);
        assert_eq!(*drain.in_flight().borrow(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn new_work_is_taken_for_a_while_and_no_drain_is_over_before() {
        let drain = Drain::with_grace(Duration::from_secs(4));
        let start = Instant::now();
        drain.order(Some(Duration::from_secs(60)));
        assert!(drain.is_draining() && drain.admits());
        assert_eq!(drain.left(), 1, "something may still come");
        tokio::time::advance(Duration::from_secs(3)).await;
        drain.order(Some(Duration::from_secs(60)));
        drain.begin(Duration::from_secs(60));
        let work = drain.enter().unwrap();
        assert_eq!(drain.left(), 2);
        drop(work);
        assert_eq!(drain.finished().await, 0);
        assert_eq!(
            start.elapsed().as_secs(),
            4,
            "said again, it is no new drain"
        );
        assert!(drain.enter().is_none());
        assert_eq!(drain.left(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_can_be_taken_back_and_the_end_of_the_process_cannot() {
        let drain = Drain::new();
        drain.order(Some(Duration::from_secs(60)));
        assert!(drain.is_draining());
        let work = {
            drain.order(None);
            drain.enter().unwrap()
        };
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move { drain.finished().await }
        });
        drain.order(Some(Duration::from_secs(60)));
        tokio::task::yield_now().await;
        drain.order(None);
        drop(work);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "nobody drains");
        drain.begin(Duration::from_secs(60));
        drain.order(None);
        assert!(drain.is_draining());
        assert_eq!(waiting.await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_deadline_is_noticed_by_those_who_wait() {
        let drain = Drain::new();
        let _work = drain.enter();
        drain.begin(Duration::from_secs(u64::MAX));
        let start = Instant::now();
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move { drain.finished().await }
        });
        tokio::task::yield_now().await;
        drain.begin(Duration::ZERO);
        assert_eq!(waiting.await.unwrap(), 1);
        assert_eq!(start.elapsed().as_secs(), 0);
    }
}
