//! What became of drafts, by the mean width of the anchor that they were made on.

use lynx_units::Width;

use super::Counter;

/// One more than the widest anchor's eighths of a bit; more are counted as that.
const WIDTHS: usize = 16 * 8 + 1;

/// What became of drafts on anchors of one width.
#[derive(Debug, Default)]
pub struct WidthDrafts {
    /// Drafts that were compared with the full KV.
    pub drafts: Counter,
    /// Their tokens.
    pub drafted: Counter,
    /// Tokens that stood.
    pub accepted: Counter,
    /// Tokens that a finer KV took back, or whose KV failed, or that nobody wanted any more.
    pub wasted: Counter,
}

/// By the width's eighths of a bit.
#[derive(Debug)]
pub struct Drafts(Box<[WidthDrafts]>);

impl Default for Drafts {
    fn default() -> Self {
        Self((0..WIDTHS).map(|_| WidthDrafts::default()).collect())
    }
}

impl Drafts {
    /// A draft on an anchor of this width was compared with the full KV: so many tokens, of which so many stood.
    pub fn verified(&self, width: Width, drafted: u32, accepted: u32) {
        let of = self.of(width);
        of.drafts.add(1);
        of.drafted.add(drafted.into());
        of.accepted.add(accepted.into());
        self.wasted(width, drafted.saturating_sub(accepted));
    }

    /// So many drafted tokens were for nothing.
    pub fn wasted(&self, width: Width, tokens: u32) {
        self.of(width).wasted.add(tokens.into());
    }

    fn of(&self, width: Width) -> &WidthDrafts {
        let place = usize::from(width.eighths());
        &self.0[place.min(WIDTHS - 1)]
    }

    /// The widths on which anything was drafted, in bits, with what became of it.
    pub fn by_width(&self) -> impl Iterator<Item = (f64, &WidthDrafts)> {
        self.by_eighths()
            .map(|(eighths, of)| (f64::from(eighths) / 8.0, of))
    }

    /// The same in eighths of a bit.
    pub fn by_eighths(&self) -> impl Iterator<Item = (u32, &WidthDrafts)> {
        let any = |of: &WidthDrafts| of.drafts.get() > 0 || of.wasted.get() > 0;
        (0_u32..).zip(&self.0).filter(move |(_, of)| any(of))
    }

    /// A sum over all widths.
    pub fn sum(&self, of: impl Fn(&WidthDrafts) -> &Counter) -> u64 {
        self.0.iter().map(|width| of(width).get()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_widths_that_drafted_are_told() {
        let drafts = Drafts::default();
        let width = Width::from_eighths(28).unwrap();
        drafts.verified(width, 10, 7);
        drafts.wasted(width, 2);
        let told: Vec<_> = drafts
            .by_width()
            .map(|(bits, of)| (bits, of.drafts.get(), of.accepted.get(), of.wasted.get()))
            .collect();
        assert_eq!(told, [(3.5, 1, 7, 5)]);
        assert_eq!(drafts.sum(|of| &of.drafted), 10);
    }
}
