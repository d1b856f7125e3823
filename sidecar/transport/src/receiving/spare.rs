//! Memory of segments that the application is done with, for the segments that come next.

/// A few large buffers. The system hands out large memory page by page, each cleared first: at a gigabyte a second that costs
/// more than reading the payload into it. Small buffers are the allocator's, which is good at them.
///
/// Contents are what they were: whoever takes a buffer writes all of it before anybody reads it.
#[derive(Debug, Default)]
pub(super) struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    /// Below this the allocator keeps memory at hand itself.
    const WORTH_KEEPING: usize = 64 << 10;
    /// Kept in all: what an application that keeps up with the wire has in its hands.
    const MOST: usize = 8 << 20;

    /// A buffer of exactly `length` bytes. One that is kept is taken only where no more than half of it would lie idle.
    pub(super) fn take(&mut self, length: usize) -> Vec<u8> {
        let fits = |buffer: &Vec<u8>| (length..=2 * length).contains(&buffer.capacity());
        let Some(at) = self.buffers.iter().rposition(fits) else {
            return vec![0; length];
        };
        let mut buffer = self.buffers.swap_remove(at);
        self.bytes -= buffer.capacity();
        buffer.resize(length, 0);
        buffer
    }

    /// Keeps a buffer, or gives it back to the system where there are enough.
    pub(super) fn put(&mut self, buffer: Vec<u8>) {
        let size = buffer.capacity();
        if size >= Self::WORTH_KEEPING && self.bytes + size <= Self::MOST {
            self.bytes += size;
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_for_a_segment_of_about_its_size() {
        let mut spare = Spare::default();
        spare.put(vec![7; 100_000]);
        // A new buffer is cleared, and the one that is kept is not.
        assert!(!spare.take(100_001).contains(&7), "too short");
        assert!(!spare.take(49_999).contains(&7), "half would lie idle");
        assert_eq!(spare.take(70_000), [7; 70_000]);
        assert!(!spare.take(70_000).contains(&7), "it is taken");
    }

    #[test]
    fn what_is_kept_is_bounded_and_counted() {
        let mut spare = Spare::default();
        spare.put(vec![0; Spare::WORTH_KEEPING - 1]);
        assert_eq!(spare.bytes, 0);
        for _ in 0..100 {
            spare.put(vec![0; 1 << 20]);
        }
        assert_eq!((spare.buffers.len(), spare.bytes), (8, 8 << 20));
        spare.take(1 << 20);
        assert_eq!((spare.buffers.len(), spare.bytes), (7, 7 << 20));
    }

    /// Against a list of what was put in and not taken out again.
    #[test]
    fn whatever_is_taken_and_put_the_count_is_of_what_is_there() {
        bolero::check!()
            .with_type::<Vec<(bool, u8)>>()
            .for_each(|ops| {
                let mut spare = Spare::default();
                let mut kept: Vec<usize> = Vec::new();
                for (put, size) in ops {
                    let size = usize::from(*size) << 14;
                    if *put {
                        spare.put(Vec::with_capacity(size));
                        let room = kept.iter().sum::<usize>() + size <= Spare::MOST;
                        kept.extend((size >= Spare::WORTH_KEEPING && room).then_some(size));
                    } else {
                        let taken = spare.take(size);
                        assert_eq!(taken.len(), size);
                        let mut fitting = kept.iter();
                        let at = fitting.rposition(|kept| (size..=2 * size).contains(kept));
                        at.map(|at| kept.swap_remove(at));
                    }
                    assert_eq!(spare.bytes, kept.iter().sum::<usize>());
                    assert_eq!(spare.buffers.len(), kept.len());
                }
            });
    }
}
