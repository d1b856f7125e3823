//! What a split has made, brought to the processor: as a unit's segments, or into memory of the caller's.

use lynx_gpu::Status;
use lynx_kernels::{LayerOrder, UnitBuffer, UnitPlan, checksum};

use super::layout::{head_len, number};
use super::{Cache, CodeError, GpuCoder, InCache, Pinned, Work};
use crate::coder::Segments;
use crate::driver::Registered;

/// Segments start at multiples of it in memory of the caller's.
const ALIGNMENT: usize = 16;

/// Where a segment lies in memory of the caller's, and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its first byte.
    pub offset: usize,
    /// Its length.
    pub bytes: usize,
    /// Its checksum.
    pub sum: u64,
}

impl GpuCoder {
    /// Pins memory of the caller's, so that [`Self::split_into`] copies there without a detour. It counts in the budget. What was
    /// registered before is let go.
    ///
    /// # Errors
    /// Where the budget or the driver refuses: then [`Self::split_into`] takes the detour, with the same result.
    ///
    /// # Safety
    /// The memory stays mapped until [`Self::unregister`], or as long as the coder.
    pub unsafe fn register(&mut self, pointer: *mut u8, bytes: usize) -> Result<(), CodeError> {
        self.unregister();
        let slot = self.staging.begin(bytes)?;
        self.staging.complete(slot)?;
        // SAFETY: the caller vouches for the memory.
        let registered = unsafe { Registered::new(self.stream.device(), pointer, bytes) };
        match registered {
            Ok(registered) => {
                self.registered = Some((registered, slot));
                Ok(())
            }
            Err(refused) => {
                self.staging.release(slot)?;
                Err(refused.into())
            }
        }
    }

    /// Lets go of registered memory.
    pub fn unregister(&mut self) {
        if let Some((registered, slot)) = self.registered.take() {
            drop(registered);
            let released = self.staging.release(slot);
            debug_assert_eq!(released, Ok(()), "held since it was registered");
        }
    }

    /// Pinned bytes that are in use, registered ones among them.
    pub const fn pinned_bytes(&self) -> usize {
        self.staging.used()
    }

    /// As [`Coder::split`](crate::Coder::split), into memory of the caller's: head, steps and tail, each from the next multiple of 16 on.
    ///
    /// # Errors
    /// As for a split, and where the memory is too small. What is in it then is anything.
    pub fn split_into(
        &mut self,
        plan: &UnitPlan,
        order: &LayerOrder,
        cache: &Cache,
        with_tail: bool,
        to: &mut [u8],
    ) -> Result<Vec<Placed>, CodeError> {
        let units = [InCache { plan, order, cache }];
        let placed = self.split_all_into(&units, with_tail, to)?.pop();
        Ok(placed.unwrap_or_default())
    }

    /// The same, of several units in one launch, one behind the other.
    ///
    /// # Errors
    /// As for one, of any of them.
    pub fn split_all_into(
        &mut self,
        units: &[InCache<'_>],
        with_tail: bool,
        to: &mut [u8],
    ) -> Result<Vec<Vec<Placed>>, CodeError> {
        let (works, statuses) = self.make(units, with_tail)?;
        let count = |work: &Work<'_>| work.plan.segments() - usize::from(!with_tail);
        // Their length is in the head itself, and they are rare: the heads take the detour.
        if statuses.iter().any(|status| status.escaped > 0) {
            let made = self.collect(&works, &statuses)?;
            let segments = made.iter().zip(&works).flat_map(|(made, work)| {
                let sums = made.sums.iter().copied();
                let segments = (0..count(work)).filter_map(|index| made.unit.segment(index));
                segments.zip(sums)
            });
            let lengths = segments.clone().map(|(bytes, sum)| (bytes.len(), sum));
            let placed = lay_out(lengths, to.len())?;
            for (place, (bytes, _)) in placed.iter().zip(segments) {
                to[place.offset..][..place.bytes].copy_from_slice(bytes);
            }
            return Ok(by_unit(placed, works.iter().map(count)));
        }
        let mut pieces = Vec::new();
        let mut sums = Vec::new();
        for (work, status) in works.iter().zip(&statuses) {
            let of_unit = work.pieces(*status);
            sums.extend(work.sums(*status, &of_unit).into_iter().take(count(work)));
            pieces.extend(of_unit.into_iter().take(count(work)));
        }
        let lengths = pieces.iter().map(|(_, bytes)| *bytes).zip(sums);
        let placed = lay_out(lengths, to.len())?;
        self.fetch(&pieces, &placed, to)?;
        Ok(by_unit(placed, works.iter().map(count)))
    }

    /// Brings pieces of the arena to their places.
    fn fetch(
        &mut self,
        pieces: &[(usize, usize)],
        placed: &[Placed],
        to: &mut [u8],
    ) -> Result<(), CodeError> {
        let moves = pieces.iter().zip(placed);
        let moves: Vec<_> = moves
            .map(|(piece, to)| (piece.0, to.offset, to.bytes))
            .collect();
        match (&self.registered, &self.arena) {
            (Some((registered, _)), Some(arena)) if registered.has(to) => {
                self.stream.bring(arena, (registered, to), &moves)?;
            }
            _ => {
                let bytes = self.download(pieces)?;
                for (from, at, length) in moves {
                    to[at..][..length].copy_from_slice(&bytes[from..][..length]);
                }
            }
        }
        Ok(())
    }

    /// As [`Coder::split`](crate::Coder::split), of several units in one launch: a layer's K and V.
    ///
    /// # Errors
    /// As for a split, of any of them.
    pub fn split_all(
        &mut self,
        units: &[InCache<'_>],
        with_tail: bool,
    ) -> Result<Vec<Segments>, CodeError> {
        let (works, statuses) = self.make(units, with_tail)?;
        self.collect(&works, &statuses)
    }

    /// Splits units, and leaves their segments in the arena.
    fn make<'a>(
        &mut self,
        units: &[InCache<'a>],
        with_tail: bool,
    ) -> Result<(Vec<Work<'a>>, Vec<Status>), CodeError> {
        let (works, told) = self.begin(units, None)?;
        self.upload(&works, &told, None)?;
        self.run_split(&works, with_tail)?;
        let statuses = self.statuses(&works)?;
        for (work, status) in works.iter().zip(&statuses) {
            if status.escaped > 0 {
                self.plan(work, "lynx_escape", false)?;
            }
        }
        Ok((works, statuses))
    }

    /// What it has made, as segments of their own.
    fn collect(
        &mut self,
        works: &[Work<'_>],
        statuses: &[Status],
    ) -> Result<Vec<Segments>, CodeError> {
        let each = works.iter().zip(statuses);
        let all: Vec<_> = each.map(|(work, status)| work.pieces(*status)).collect();
        let bytes = self.download(&all.concat())?;
        let piece = |&(at, len): &(usize, usize)| bytes[at..][..len].to_vec();
        let each = works.iter().zip(statuses).zip(&all);
        let mut made: Vec<_> = each
            .map(|((work, status), pieces)| {
                let tail = pieces.len() - 1;
                let unit = UnitBuffer {
                    head: piece(&pieces[0]),
                    steps: pieces[1..tail].iter().map(piece).collect(),
                    tail: piece(&pieces[tail]),
                };
                let sums = work.sums(*status, pieces);
                Segments { unit, sums }
            })
            .collect();
        for (work, Segments { unit, sums }) in works.iter().zip(&mut made) {
            let plan = work.plan;
            let escaped = head_len(plan, &unit.head) - plan.head_bytes();
            if escaped > 0 {
                let at = work.layout.head + plan.head_bytes();
                let bytes = self.download(&[(at, escaped)])?;
                unit.head.extend_from_slice(&bytes[at..][..escaped]);
                // So rare that the processor may read it again.
                sums[0] = checksum(&unit.head);
            }
        }
        Ok(made)
    }

    /// The coder's pinned memory, of at least so many bytes.
    pub(super) fn pinned(&mut self, bytes: usize) -> Result<Pinned, CodeError> {
        // Left where what was to come after it has failed: it waits when dropped.
        self.going_up = None;
        let pinned = self.pinned.take();
        if let Some(pinned) = pinned.filter(|it| it.as_slice().len() >= bytes) {
            return Ok(pinned);
        }
        if let Some(slot) = self.slot.take() {
            self.staging.release(slot)?;
        }
        let slot = self.staging.begin(bytes)?;
        // The coder's as long as nothing larger is needed.
        self.staging.complete(slot)?;
        self.slot = Some(slot);
        Ok(Pinned::new(self.stream.device(), bytes)?)
    }
}

impl Work<'_> {
    /// Where the segments lie in the arena, and how long they are: the head without escaped groups.
    fn pieces(&self, status: Status) -> Vec<(usize, usize)> {
        let (plan, layout) = (self.plan, &self.layout);
        let mut pieces = vec![(layout.head, plan.head_bytes())];
        let steps = layout.steps.iter().enumerate();
        pieces.extend(steps.map(|(step, &at)| (at, plan.step_bytes(step))));
        pieces.push((layout.tail, status.tail_bytes as usize));
        pieces
    }

    fn sums(&self, status: Status, pieces: &[(usize, usize)]) -> Vec<u64> {
        let sum = |(index, &(_, bytes))| status.checksum(number(self.plan, index), bytes);
        pieces.iter().enumerate().filter_map(sum).collect()
    }
}

/// Segments of these lengths and checksums, one behind the other.
fn lay_out(
    segments: impl Iterator<Item = (usize, u64)>,
    capacity: usize,
) -> Result<Vec<Placed>, CodeError> {
    let mut end = 0usize;
    let placed = segments.map(|(bytes, sum)| {
        let offset = end.next_multiple_of(ALIGNMENT);
        end = offset + bytes;
        Placed { offset, bytes, sum }
    });
    let placed = placed.collect();
    if end > capacity {
        return Err(CodeError::TooSmall {
            wanted: end,
            capacity,
        });
    }
    Ok(placed)
}

/// As many for each unit as it has.
fn by_unit(placed: Vec<Placed>, counts: impl Iterator<Item = usize>) -> Vec<Vec<Placed>> {
    let mut placed = placed.into_iter();
    counts
        .map(|count| placed.by_ref().take(count).collect())
        .collect()
}
