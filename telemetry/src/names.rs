//! The names of Lynx's spans: one vocabulary, so that a trace reads the same whoever made its parts.

/// A decode agent's request, from its arrival to its last token. Server.
pub const REQUEST: &str = "lynx.request";
/// A request waits until its engine can take it.
pub const QUEUE: &str = "lynx.queue";
/// The KV's way from the prefill engine into the decode engine's blocks. Client on the decode agent, server on the prefill
/// agent.
pub const TRANSFER: &str = "lynx.transfer";
/// A prefill engine computes a prompt.
pub const PREFILL: &str = "lynx.prefill";
/// The prefill agent splits one layer's KV by significance.
pub const SPLIT: &str = "lynx.split";
/// From the transfer's start until the anchor is merged.
pub const ANCHOR: &str = "lynx.anchor";
/// The decode engine drafts on an incomplete KV.
pub const DRAFT: &str = "lynx.draft";
/// From the anchor until all KV is merged.
pub const RESIDUAL: &str = "lynx.residual";
/// The decode engine verifies its drafts over the full KV.
pub const VERIFY: &str = "lynx.verify";
/// The decode engine decodes on the full KV.
pub const DECODE: &str = "lynx.decode";
/// The decode engine computes a prompt whose KV did not come.
pub const RECOMPUTE: &str = "lynx.recompute";
/// The operator brings one deployment to what it should be.
pub const RECONCILE: &str = "lynx.reconcile";
