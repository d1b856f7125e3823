//! Where one request is.

use std::sync::Arc;

use crate::pool::{Grant, Readable};

/// A request between its first message and its last.
#[derive(Debug)]
pub(super) enum State {
    /// The agent has handed it in.
    Submitted {
        /// Whether its KV comes from elsewhere.
        transfer: bool,
        /// Whether the agent wants it no more.
        aborted: bool,
    },
    Prefilling(Prefilling),
    Decoding(Decoding),
}

/// A prompt that is computed.
#[derive(Debug)]
pub(super) struct Prefilling {
    pub(super) tokens: u32,
    pub(super) from_token: u32,
    /// From PrefillStarted to Release.
    pub(super) blocks: Option<Arc<Readable>>,
    /// Whether all is published.
    pub(super) done: bool,
    pub(super) finished: bool,
}

/// A request whose KV is announced.
#[derive(Debug)]
pub(super) struct Decoding {
    grant: Grant,
    /// Whether a grant is asked for.
    wanted: bool,
    /// Whether the agent has said its last word about the KV. A grant that crosses it is none.
    over: bool,
}

/// What a WriteGrant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Granted {
    /// One that was asked for.
    Given,
    /// One that crossed the agent's last word: it is over already.
    TooLate,
    /// One that nobody asked for.
    Unasked,
}

impl Prefilling {
    pub(super) fn new(tokens: u32, from_token: u32) -> Self {
        Self {
            tokens,
            from_token,
            blocks: None,
            done: false,
            finished: false,
        }
    }
}

impl Decoding {
    pub(super) fn new(grant: Grant) -> Self {
        Self {
            grant,
            wanted: false,
            over: false,
        }
    }

    /// The agent asks for a grant.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// The engine gives one.
    pub(super) fn grant(&mut self) -> Granted {
        match (std::mem::take(&mut self.wanted), self.over) {
            (false, _) => Granted::Unasked,
            (true, true) => Granted::TooLate,
            (true, false) => {
                self.grant.set(true);
                Granted::Given
            }
        }
    }

    /// The agent gives the blocks back.
    pub(super) fn give_back(&mut self) {
        self.grant.set(false);
    }

    /// The agent won't write any more: the engine may use the blocks for another request.
    pub(super) fn end(&mut self) {
        self.over = true;
        self.grant.end();
    }

    /// The engine has ended the request. What is left where its blocks are the agent's at that moment; where they are the
    /// engine's, they may be another request's from now on.
    pub(super) fn finish(self) -> Option<Grant> {
        if self.grant.is_given() {
            return Some(self.grant);
        }
        self.grant.end();
        None
    }
}
