//! What codes units, wherever their values are.

use core::convert::Infallible;

use lynx_kernels::{Blocks, Codec, LayerOrder, MergeError, UnitBuffer, UnitPlan, checksum};

/// A unit's segments, with their checksums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// The bytes. The tail is empty where none was asked for.
    pub unit: UnitBuffer,
    /// Of the head, the steps and the tail.
    pub sums: Vec<u64>,
}

/// Codes units of one layer and kind. Implementations give the same bits.
pub trait Coder {
    /// Where the values are.
    type Cache;
    /// What can fail in a split.
    type SplitError: std::error::Error;
    /// What can fail in a merge.
    type MergeError: std::error::Error;

    /// Splits a unit, with its tail where that is asked for.
    ///
    /// # Errors
    /// Where the values can't be read or coded here.
    fn split(
        &mut self,
        plan: &UnitPlan,
        order: &LayerOrder,
        cache: &Self::Cache,
        with_tail: bool,
    ) -> Result<Segments, Self::SplitError>;

    /// Merges the head and the first steps, as many as the number beside the segments.
    ///
    /// # Errors
    /// Where the segments aren't what a split makes, have other checksums than `segments` says, or the values can't be
    /// written. What was written is then not to be used.
    fn merge(
        &mut self,
        plan: &UnitPlan,
        order: &LayerOrder,
        read: (&Segments, usize),
        cache: &mut Self::Cache,
    ) -> Result<(), Self::MergeError>;

    /// Restores a unit bit for bit from all its segments.
    ///
    /// # Errors
    /// As those of a merge.
    fn restore(
        &mut self,
        plan: &UnitPlan,
        order: &LayerOrder,
        segments: &Segments,
        cache: &mut Self::Cache,
    ) -> Result<(), Self::MergeError>;
}

/// The processor: the codec, on blocks in host memory.
#[derive(Clone, Copy, Debug)]
pub struct Processor(pub Codec);

/// What the processor finds wrong with segments.
#[derive(Debug, thiserror::Error)]
pub enum WrongSegments {
    /// Not what was sent.
    #[error("segment {0} has another checksum than its sender computed")]
    Checksum(usize),
    /// Not what a split makes.
    #[error(transparent)]
    Codec(#[from] MergeError),
}

impl Coder for Processor {
    type Cache = Blocks;
    type SplitError = Infallible;
    type MergeError = WrongSegments;

    fn split(
        &mut self,
        plan: &UnitPlan,
        order: &LayerOrder,
        cache: &Blocks,
        with_tail: bool,
    ) -> Result<Segments, Infallible> {
        let mut unit = UnitBuffer::default();
        self.0.split(plan, order, cache, &mut unit);
        if with_tail {
            self.0.encode_tail(plan, cache, &mut unit.tail);
        }
        let segments = (0..plan.segments()).filter_map(|index| unit.segment(index));
        let sums = segments.map(checksum).collect();
        Ok(Segments { unit, sums })
    }

    fn merge(
        &mut self,
        plan: &UnitPlan,
        order: &LayerOrder,
        (segments, steps): (&Segments, usize),
        cache: &mut Blocks,
    ) -> Result<(), WrongSegments> {
        check(segments, steps + 1)?;
        Ok(self.0.merge(plan, order, &segments.unit, steps, cache)?)
    }

    fn restore(
        &mut self,
        plan: &UnitPlan,
        order: &LayerOrder,
        segments: &Segments,
        cache: &mut Blocks,
    ) -> Result<(), WrongSegments> {
        check(segments, plan.segments())?;
        Ok(self.0.decode_tail(plan, order, &segments.unit, cache)?)
    }
}

fn check(segments: &Segments, count: usize) -> Result<(), WrongSegments> {
    let mut all = (0..count).zip(&segments.sums);
    let wrong = all.find(|(index, sum)| segments.unit.segment(*index).map(checksum) != Some(**sum));
    wrong.map_or(Ok(()), |(index, _)| Err(WrongSegments::Checksum(index)))
}
