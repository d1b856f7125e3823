//! What every word and every moment does in every state of a drain, as a table.

use super::*;

const GRACE: Duration = Duration::from_secs(4);

#[derive(Clone, Copy)]
enum Step {
    /// The operator wants a drain of so many seconds, or none any more.
    Order(Option<u64>),
    /// The process ends, in so many seconds at most.
    Begin(u64),
    /// So many seconds pass.
    Pass(u64),
    /// Somebody brings work, and it goes on.
    Enter,
    /// The work that went on ends.
    Leave,
}

use Step::{Begin, Enter, Leave, Order, Pass};

const STATES: [(&str, &[Step]); 9] = [
    ("working", &[]),
    ("working, busy", &[Enter]),
    ("ordered", &[Order(Some(60))]),
    ("ordered, busy", &[Enter, Order(Some(60))]),
    (
        "ordered, after its grace",
        &[Enter, Order(Some(60)), Pass(5)],
    ),
    ("ending", &[Begin(60)]),
    ("ending, after its grace", &[Enter, Begin(60), Pass(5)]),
    (
        "ordered, then ending",
        &[Enter, Order(Some(60)), Pass(5), Begin(60)],
    ),
    ("past its deadline", &[Enter, Begin(60), Pass(61)]),
];

const INPUTS: [(&str, Step); 9] = [
    ("ordered for 60 s", Order(Some(60))),
    ("ordered for 10 s", Order(Some(10))),
    ("order taken back", Order(None)),
    ("ending in 60 s", Begin(60)),
    ("ending in 10 s", Begin(10)),
    ("work comes", Enter),
    ("work ends", Leave),
    ("5 s pass", Pass(5)),
    ("61 s pass", Pass(61)),
];

/// A drain, and the work that goes on.
struct World {
    drain: Drain,
    work: Vec<InFlight>,
}

impl World {
    async fn reach(steps: &[Step]) -> Self {
        let drain = Drain::with_grace(GRACE);
        let mut world = Self {
            drain,
            work: Vec::new(),
        };
        for step in steps {
            world.apply(*step).await;
        }
        world
    }

    async fn apply(&mut self, step: Step) {
        match step {
            Order(seconds) => self.drain.order(seconds.map(Duration::from_secs)),
            Begin(seconds) => self.drain.begin(Duration::from_secs(seconds)),
            Pass(seconds) => tokio::time::advance(Duration::from_secs(seconds)).await,
            Enter => self.work.extend(self.drain.enter()),
            Leave => drop(self.work.pop()),
        }
    }

    /// What those see who ask, and whether somebody who waits for the end would be done now.
    async fn seen(&self) -> String {
        let is_over = tokio::select! {
            biased;
            _ = self.drain.finished() => true,
            () = turns() => false,
        };
        let state = match (self.drain.is_draining(), is_over) {
            (false, _) => "working",
            (true, false) => "draining",
            (true, true) => "over",
        };
        let admits = if self.drain.admits() {
            "takes work"
        } else {
            "takes none"
        };
        let left = self.drain.left();
        format!("{state}, {admits}, {left} left")
    }
}

/// Enough for whoever has nothing to wait for.
async fn turns() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_word_and_moment_does_this_in_every_state() {
    let mut text = String::new();
    for (state, steps) in STATES {
        let seen = World::reach(steps).await.seen().await;
        text += &format!("{state} ({seen})\n");
        for (name, input) in INPUTS {
            let mut world = World::reach(steps).await;
            world.apply(input).await;
            text += &format!("    {name:18}{}\n", world.seen().await);
        }
    }
    insta::assert_snapshot!(text);
}
