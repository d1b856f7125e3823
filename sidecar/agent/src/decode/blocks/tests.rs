use std::collections::VecDeque;

use super::*;

/// What is left of what the link brings.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Arrival {
    Segment,
    Level(u8),
    Complete,
}

/// Who reads or writes at this moment, as the engine sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum View {
    Agents,
    Own { wanted: bool },
    Granted,
    Ended,
}

/// An agent's machine, an engine, and what is on its way between them.
struct World {
    blocks: Blocks,
    merging: bool,
    engine: View,
    to_engine: VecDeque<Action>,
    grants: u32,
    arrivals: VecDeque<Arrival>,
    told: Vec<Action>,
}

impl World {
    fn new(levels: u8, segments: usize) -> Self {
        let mut arrivals = VecDeque::new();
        for level in 0..levels {
            arrivals.extend([Arrival::Segment].repeat(segments));
            let last = level + 1 == levels;
            arrivals.push_back(if last {
                Arrival::Complete
            } else {
                Arrival::Level(level)
            });
        }
        Self {
            blocks: Blocks::expected(),
            merging: false,
            engine: View::Agents,
            to_engine: VecDeque::new(),
            grants: 0,
            arrivals,
            told: Vec::new(),
        }
    }

    fn poll(&mut self) {
        while let Some(action) = self.blocks.poll_action() {
            assert!(!self.merging, "{action:?} in the middle of a merge");
            match action {
                Action::Merge => {
                    assert!(
                        matches!(self.engine, View::Agents | View::Granted),
                        "a merge while the engine has its blocks: {:?}",
                        self.engine
                    );
                    self.merging = true;
                }
                action => self.to_engine.push_back(action),
            }
        }
    }

    fn arrive(&mut self) {
        match self.arrivals.pop_front() {
            _ if !self.blocks.is_loading() => {}
            Some(Arrival::Segment) => self.blocks.handle_arrived(),
            Some(Arrival::Level(level)) => self.blocks.handle_level(level),
            Some(Arrival::Complete) => self.blocks.handle_complete(),
            None => {}
        }
    }

    fn end_merge(&mut self) {
        if std::mem::take(&mut self.merging) {
            self.blocks.handle_merged();
        }
    }

    fn deliver_to_engine(&mut self) {
        let Some(action) = self.to_engine.pop_front() else {
            return;
        };
        assert_ne!(self.engine, View::Ended, "{action:?} after the end");
        self.told.push(action.clone());
        assert!(!self.merging, "{action:?} arrives while the agent writes");
        self.engine = match (action, self.engine) {
            (Action::WantGrant, View::Own { wanted: false }) => View::Own { wanted: true },
            (Action::GrantReturned, View::Granted) => View::Own { wanted: false },
            (
                Action::AnchorReady(_),
                View::Agents | View::Granted | View::Own { wanted: false },
            ) => View::Own { wanted: false },
            (Action::End(_), _) => View::Ended,
            (action, view) => panic!("{action:?} makes no sense to an engine in {view:?}"),
        };
    }

    fn engine_step(&mut self) {
        match self.engine {
            View::Own { wanted: true } => {
                self.engine = View::Granted;
                self.grants += 1;
            }
            View::Own { .. } | View::Ended => assert!(!self.merging, "the engine reads"),
            View::Agents | View::Granted => {}
        }
    }

    fn deliver_grant(&mut self) {
        if self.grants > 0 {
            self.grants -= 1;
            self.blocks.handle_grant();
        }
    }

    fn act(&mut self, choice: u8) {
        match choice {
            0..90 => self.arrive(),
            90..130 => self.end_merge(),
            130..170 => self.deliver_to_engine(),
            170..200 => self.engine_step(),
            200..240 => self.deliver_grant(),
            240..248 => self.blocks.handle_first_token(),
            248..252 => self.end(End::Failed("the link is lost".to_owned())),
            252.. => self.end(End::Abort),
        }
        self.poll();
    }

    fn end(&mut self, end: End) {
        if !self.blocks.is_over() {
            self.blocks.end(end);
        }
    }

    /// Everything that is on its way arrives.
    fn settle(&mut self) {
        for _ in 0..2000 {
            self.arrive();
            self.poll();
            self.end_merge();
            self.poll();
            self.deliver_to_engine();
            self.engine_step();
            self.deliver_grant();
            self.poll();
        }
        assert!(!self.merging && self.to_engine.is_empty());
    }
}

#[test]
fn nothing_is_written_outside_of_what_is_the_agents_and_every_request_ends() {
    bolero::check!()
        .with_type::<(u8, u8, Vec<u8>)>()
        .for_each(|(levels, segments, choices)| {
            let mut world = World::new(levels % 5 + 1, usize::from(segments % 7));
            for choice in choices {
                world.act(*choice);
            }
            world.blocks.handle_first_token();
            world.settle();
            assert!(world.blocks.is_over());
            assert_eq!(world.engine, View::Ended);
            let ends = world
                .told
                .iter()
                .filter(|told| matches!(told, Action::End(_)));
            assert_eq!(ends.count(), 1);
            let mut levels: Vec<u8> = world
                .told
                .iter()
                .filter_map(|told| match told {
                    Action::AnchorReady(level) => Some(*level),
                    _ => None,
                })
                .collect();
            let told = levels.clone();
            levels.sort_unstable();
            levels.dedup();
            assert_eq!(told, levels, "levels rise");
        });
}

/// Polls until there is nothing to do.
fn actions(blocks: &mut Blocks) -> Vec<Action> {
    std::iter::from_fn(|| blocks.poll_action()).collect()
}

#[test]
fn an_anchor_is_told_once_it_is_merged_and_the_rest_asks_first() {
    let mut blocks = Blocks::expected();
    blocks.handle_arrived();
    assert_eq!(actions(&mut blocks), [Action::Merge]);
    blocks.handle_arrived();
    blocks.handle_level(0);
    blocks.handle_arrived();
    assert_eq!(actions(&mut blocks), []);
    blocks.handle_merged();
    assert_eq!(actions(&mut blocks), [Action::Merge]);
    blocks.handle_merged();
    assert_eq!(actions(&mut blocks), [Action::AnchorReady(0)]);
    blocks.handle_arrived();
    assert_eq!(actions(&mut blocks), [Action::WantGrant]);
    blocks.handle_level(1);
    assert_eq!(actions(&mut blocks), [], "a grant may be on its way");
    blocks.handle_grant();
    assert_eq!(actions(&mut blocks), [Action::Merge]);
    blocks.handle_merged();
    assert_eq!(actions(&mut blocks), [Action::AnchorReady(1)]);
    blocks.handle_grant();
    blocks.handle_arrived();
    assert_eq!(
        actions(&mut blocks),
        [Action::WantGrant],
        "a grant that nobody asked for is none"
    );
    blocks.handle_grant();
    assert_eq!(actions(&mut blocks), [Action::Merge]);
    blocks.handle_arrived();
    blocks.handle_merged();
    assert_eq!(
        actions(&mut blocks),
        [Action::GrantReturned, Action::WantGrant],
        "the engine has its turn between two merges"
    );
}

#[test]
fn all_that_is_there_is_told_after_the_first_token_only() {
    let mut blocks = Blocks::expected();
    blocks.handle_arrived();
    blocks.handle_complete();
    assert_eq!(actions(&mut blocks), [Action::Merge]);
    blocks.handle_merged();
    assert_eq!(actions(&mut blocks), []);
    blocks.handle_first_token();
    assert_eq!(actions(&mut blocks), [Action::End(End::Full)]);
    assert!(blocks.is_over());
}

#[test]
fn a_failure_in_the_middle_of_a_merge_waits_for_its_end() {
    let mut blocks = Blocks::expected();
    blocks.handle_arrived();
    assert_eq!(actions(&mut blocks), [Action::Merge]);
    let lost = End::Failed("lost".to_owned());
    blocks.end(lost.clone());
    blocks.end(End::Failed("again".to_owned()));
    assert!(!blocks.is_loading() && !blocks.is_over());
    assert_eq!(actions(&mut blocks), []);
    blocks.handle_merged();
    assert_eq!(actions(&mut blocks), [Action::End(lost)]);
    blocks.end(End::Abort);
    blocks.handle_arrived();
    blocks.handle_grant();
    assert_eq!(actions(&mut blocks), []);
}
