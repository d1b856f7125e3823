//! Who may touch a request's KV blocks, and what the engine is told when.
//!
//! ```text
//!            arrived: merge at once                 arrived: ask                    granted: merge
//!          ┌────────────────────────┐ anchor      ┌────────────────┐ WantGrant    ┌───────┐ WriteGrant  ┌─────────┐
//!  Expect ─► Agent                  ├────────────►│ Engine         ├─────────────►│ Asked ├────────────►│ Granted │
//!          └───────────┬────────────┘ AnchorReady └───▲────────────┘              └───────┘             └────┬────┘
//!                      │                              └── AnchorReady, or GrantReturned, once it is merged ──┘
//!                      └──► FullReady, KvFailed or Abort, from any of these and never in the middle of a merge ──► over
//! ```
//!
//! This is the rule of the engine API as one pure machine: events go in, [`Action`]s come out, payload and time are somebody
//! else's. It refuses to know levels' contents: it counts what has arrived and what is merged. Why nothing is announced
//! while a grant is asked for: the engine may be granting at that moment, and would take the announcement for the grant's
//! return, while the agent takes the grant for a permission to write.

use std::collections::VecDeque;

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Merge all that has arrived; [`Blocks::handle_merged`] when that is done.
    Merge,
    /// Ask the engine for a grant.
    WantGrant,
    /// Give the grant back.
    GrantReturned,
    /// The blocks hold this level.
    AnchorReady(u8),
    /// It is over: the agent doesn't touch the blocks again.
    End(End),
}

/// How it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The blocks hold everything.
    Full,
    /// The KV won't come, for this reason.
    Failed(String),
    /// The request is not wanted any more.
    Abort,
}

/// Whose the blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Agent,
    Engine,
    Asked,
    /// And whether something was merged under this grant.
    Granted {
        used: bool,
    },
}

/// One request's blocks, from Expect on.
#[derive(Debug)]
pub(super) struct Blocks {
    owner: Owner,
    /// Whether a merge is being made.
    merging: bool,
    /// Segments that have come, that the last merge covers, and that are merged.
    arrived: u64,
    covered: u64,
    merged: u64,
    /// Complete levels that the engine wasn't told of, and how much must be merged for each.
    levels: VecDeque<(u8, u64)>,
    /// How much must be merged for everything to be there.
    all: Option<u64>,
    /// Whether the engine has the first token: without it, a full KV is of no use, and a failure must stay possible.
    first_token: bool,
    end: Option<End>,
    over: bool,
}

impl Blocks {
    /// The engine expects KV: the blocks are the agent's.
    pub(super) const fn expected() -> Self {
        Self {
            owner: Owner::Agent,
            merging: false,
            arrived: 0,
            covered: 0,
            merged: 0,
            levels: VecDeque::new(),
            all: None,
            first_token: false,
            end: None,
            over: false,
        }
    }

    /// Whether nothing will be done any more.
    #[cfg(test)]
    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    /// Whether KV is still awaited: nothing has ended it, or is about to.
    pub(super) const fn is_loading(&self) -> bool {
        !self.over && self.end.is_none()
    }

    /// A segment has come that something can be made of.
    pub(super) fn handle_arrived(&mut self) {
        self.arrived += 1;
    }

    /// All segments of this level, and of those below it, have come; a further one is to come.
    pub(super) fn handle_level(&mut self, level: u8) {
        self.levels.push_back((level, self.arrived));
    }

    /// Everything has come.
    pub(super) fn handle_complete(&mut self) {
        self.all = Some(self.arrived);
    }

    /// The engine was given the first token.
    pub(super) fn handle_first_token(&mut self) {
        self.first_token = true;
    }

    /// The engine grants. A grant that nobody asked for changes nothing.
    pub(super) fn handle_grant(&mut self) {
        if self.owner == Owner::Asked {
            self.owner = Owner::Granted { used: false };
        }
    }

    /// The merge that was asked for is done, or given up: nothing writes any more.
    pub(super) fn handle_merged(&mut self) {
        self.merging = false;
        self.merged = self.covered;
    }

    /// Ends it, as soon as nothing writes any more. The first reason stays, but for an abort, which needs none.
    pub(super) fn end(&mut self, end: End) {
        if self.end.is_none() || end == End::Abort {
            self.end = Some(end);
        }
    }

    /// The engine has ended the request by itself, or is gone: there is nobody to tell.
    pub(super) fn forget(&mut self) {
        self.over = true;
    }

    /// What to do next; ask until there is nothing.
    pub(super) fn poll_action(&mut self) -> Option<Action> {
        if self.over || self.merging {
            return None;
        }
        if let Some(end) = self.end.take() {
            return self.finish(end);
        }
        match self.owner {
            Owner::Asked => None,
            Owner::Agent => self.announce().or_else(|| self.merge()),
            Owner::Engine => self.announce().or_else(|| self.ask()),
            Owner::Granted { used } => self.announce().or_else(|| self.use_grant(used)),
        }
    }

    fn finish(&mut self, end: End) -> Option<Action> {
        self.over = true;
        Some(Action::End(end))
    }

    /// Tells what is merged: everything, or the last complete level.
    fn announce(&mut self) -> Option<Action> {
        if self.first_token && self.all.is_some_and(|all| self.merged >= all) {
            return self.finish(End::Full);
        }
        let mut ready = None;
        while let Some(&(level, needs)) = self.levels.front()
            && self.merged >= needs
        {
            ready = Some(level);
            self.levels.pop_front();
        }
        let ready = ready?;
        self.owner = Owner::Engine;
        Some(Action::AnchorReady(ready))
    }

    /// Merges once under a grant, and again only where that completes what can be announced: the engine is waiting.
    fn use_grant(&mut self, used: bool) -> Option<Action> {
        let announced_then =
            !self.levels.is_empty() || self.all.is_some_and(|all| self.merged < all);
        let merge = if used && !announced_then {
            None
        } else {
            self.merge()
        };
        self.owner = if merge.is_some() {
            Owner::Granted { used: true }
        } else {
            Owner::Engine
        };
        merge.or(Some(Action::GrantReturned))
    }

    fn merge(&mut self) -> Option<Action> {
        if self.arrived == self.merged {
            return None;
        }
        self.covered = self.arrived;
        self.merging = true;
        Some(Action::Merge)
    }

    fn ask(&mut self) -> Option<Action> {
        if self.arrived == self.merged {
            return None;
        }
        self.owner = Owner::Asked;
        Some(Action::WantGrant)
    }
}

#[cfg(test)]
mod matrix;
#[cfg(test)]
mod tests;
