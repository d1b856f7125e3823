//! A unit's values as they are, between the GPU and the processor: for whoever codes them otherwise. FP16 is rounded to BF16.

use lynx_kernels::{Blocks, UnitPlan};

use super::{Cache, CodeError, GpuCoder};
use crate::half::{bf16_of_fp16, fp16_of_bf16};

impl GpuCoder {
    /// Copies a unit's values from the GPU.
    ///
    /// # Errors
    /// Where they don't fit into the pinned memory, or the driver refuses.
    pub fn read(&mut self, plan: &UnitPlan, cache: &Cache) -> Result<Blocks, CodeError> {
        let mut blocks = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
        let row = plan.shape().head_dim * 2;
        let (rows, pieces) = rows(plan, cache)?;
        let pinned = self.pinned(rows.len() * row)?;
        // SAFETY: the cache's maker vouches for its pages, and this waits.
        let copy = unsafe { self.stream.fetch(cache.base, pinned, &pieces) }?;
        let pinned = copy.wait()?;
        let bytes = pinned.as_slice().chunks_exact(row);
        for ((position, head), bytes) in rows.into_iter().zip(bytes) {
            for (channel, value) in bytes.as_chunks::<2>().0.iter().enumerate() {
                let index = blocks.index(position, head, channel);
                let bits = u16::from_ne_bytes(*value);
                blocks.data_mut()[index] = if cache.place.half {
                    bf16_of_fp16(bits)
                } else {
                    bits
                };
            }
        }
        self.pinned = Some(pinned);
        Ok(blocks)
    }

    /// Copies a unit's values to the GPU.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(
        &mut self,
        plan: &UnitPlan,
        cache: &mut Cache,
        blocks: &Blocks,
    ) -> Result<(), CodeError> {
        let row = plan.shape().head_dim * 2;
        let (rows, pieces) = rows(plan, cache)?;
        let mut pinned = self.pinned(rows.len() * row)?;
        let bytes = pinned.as_mut_slice().chunks_exact_mut(row);
        for ((position, head), bytes) in rows.into_iter().zip(bytes) {
            for (channel, value) in bytes.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let index = blocks.index(position, head, channel);
                let bits = blocks.data()[index];
                *value = if cache.place.half {
                    fp16_of_bf16(bits).to_ne_bytes()
                } else {
                    bits.to_ne_bytes()
                };
            }
        }
        // SAFETY: the cache's maker vouches for its pages, and this waits.
        let copy = unsafe { self.stream.store(pinned, cache.base, &pieces) }?;
        self.pinned = Some(copy.wait()?);
        Ok(())
    }
}

/// The unit's rows, as (position, head), in an order in which neighbours are neighbours in memory; and as few pieces of memory as
/// hold them in that order.
#[expect(clippy::type_complexity, reason = "two lists, made together")]
fn rows(
    plan: &UnitPlan,
    cache: &Cache,
) -> Result<(Vec<(u32, usize)>, Vec<(usize, usize, usize)>), CodeError> {
    let place = &cache.place;
    let (pages, channels) = (place.pages, plan.shape().head_dim);
    let start = pages.start(plan.tokens().start);
    let mut rows = Vec::new();
    for position in plan.tokens() {
        let (page, slot) = (
            (position - start) / pages.tokens,
            (position - start) % pages.tokens,
        );
        let number = place.table.get(page as usize);
        let number = *number.ok_or(CodeError::Length("the table of pages"))?;
        for head in 0..plan.shape().kv_heads {
            let at = u64::from(number) * pages.page_stride
                + u64::from(slot) * u64::from(pages.token_stride)
                + head as u64 * u64::from(pages.head_stride);
            let at = usize::try_from(at * 2).map_err(|_| CodeError::Length("the pages"))?;
            rows.push((at, position, head));
        }
    }
    rows.sort_unstable_by_key(|(at, ..)| *at);
    let row = channels * 2;
    let mut pieces: Vec<(usize, usize, usize)> = Vec::new();
    for (index, (at, ..)) in rows.iter().enumerate() {
        match pieces.last_mut() {
            Some((start, _, bytes)) if *start + *bytes == *at => *bytes += row,
            _ => pieces.push((*at, index * row, row)),
        }
    }
    let rows = rows.into_iter().map(|(_, position, head)| (position, head));
    Ok((rows.collect(), pieces))
}
