//! The certificates of a deployment's agents: which there should be, and when they follow each other.
//!
//! Pure but for the keys, which [`issue`] draws. Each deployment has an authority of its own, so that a certificate of one says
//! nothing in another. All of it is one [`State`] in one Secret that no pod mounts; the Secret that pods mount is made from
//! it. A leaf is renewed after two thirds of its life, long before it ends, and agents take the new one up without a restart.
//!
//! An authority is followed in three steps, each as long as any node may take to see a new Secret: first peers are trusted by
//! both, then leaves are of the new one, then the old one is trusted no more. Skip one, and for a while some agents would refuse
//! others.

pub mod issue;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use issue::IssueError;

/// How long things last, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Lives {
    /// Agents' certificates.
    pub leaf_seconds: u32,
    /// The authority.
    pub authority_seconds: u32,
    /// Between two steps from one authority to the next: longer than a kubelet takes to update a mounted Secret.
    pub overlap_seconds: u32,
}

impl Default for Lives {
    fn default() -> Self {
        Self {
            leaf_seconds: 30 * 24 * 3600,
            authority_seconds: 365 * 24 * 3600,
            overlap_seconds: 3600,
        }
    }
}

/// A certificate with its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// In PEM.
    pub certificate: String,
    /// In PEM.
    pub key: String,
    /// Since when, in seconds since 1970.
    pub from: i64,
    /// Until when.
    pub until: i64,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key's bytes are nobody's to print.
        f.debug_struct("Pair")
            .field("from", &self.from)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

impl Pair {
    /// Two thirds of its life are over.
    fn ages_at(&self) -> i64 {
        self.from + (self.until - self.from) / 3 * 2
    }
}

/// An authority that was followed by another, and is still trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// In PEM.
    pub certificate: String,
    /// For how long.
    pub until: i64,
}

/// Everything about a deployment's certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// What leaves are issued by.
    pub authority: Pair,
    /// What they will be issued by.
    pub next: Option<Pair>,
    /// What they were issued by.
    pub former: Option<Former>,
    /// What agents have.
    pub leaf: Pair,
    /// The name in it.
    pub name: String,
}

impl State {
    /// Every authority that peers are trusted by, in PEM.
    pub fn bundle(&self) -> String {
        let next = self.next.iter().map(|next| next.certificate.as_str());
        let former = self.former.iter().map(|former| former.certificate.as_str());
        let all = std::iter::once(self.authority.certificate.as_str());
        all.chain(next).chain(former).collect()
    }

    /// When there is something to do next.
    pub fn due(&self, lives: Lives) -> i64 {
        let switch = match &self.next {
            Some(next) => next.from + i64::from(lives.overlap_seconds),
            None => self.authority.ages_at(),
        };
        let former = self.former.as_ref().map_or(i64::MAX, |former| former.until);
        switch.min(former).min(self.leaf.ages_at())
    }
}

/// What should be at `now`, from what was. `name` is what the leaf says who its holder is.
///
/// # Errors
/// Where no key or certificate can be made.
pub fn follow(old: Option<State>, name: &str, lives: Lives, now: i64) -> Result<State, IssueError> {
    let usable = old.filter(|old| now < old.authority.until && old.name == name);
    let Some(mut state) = usable else {
        let authority = issue::authority(name, now, lives)?;
        let leaf = issue::leaf(&authority, name, now, lives)?;
        return Ok(State {
            authority,
            next: None,
            former: None,
            leaf,
            name: name.to_owned(),
        });
    };
    let overlap = i64::from(lives.overlap_seconds);
    if state
        .former
        .as_ref()
        .is_some_and(|former| now >= former.until)
    {
        state.former = None;
    }
    if state.next.is_none() && now >= state.authority.ages_at() {
        state.next = Some(issue::authority(name, now, lives)?);
    }
    if let Some(next) = state.next.take_if(|next| now >= next.from + overlap) {
        let former = std::mem::replace(&mut state.authority, next);
        state.former = Some(Former {
            certificate: former.certificate,
            until: now + overlap,
        });
        state.leaf = issue::leaf(&state.authority, name, now, lives)?;
    }
    if now >= state.leaf.ages_at() {
        state.leaf = issue::leaf(&state.authority, name, now, lives)?;
    }
    Ok(state)
}
