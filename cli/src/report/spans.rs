//! What the link was busy with: from counts of bytes to spans of time.

use crate::run::{Class, Event};

/// A stretch in which the link carried bytes of one class and level.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LinkSpan {
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) class: Class,
    /// 0 for the anchor; for a residual the least level that the decode node had not complete.
    pub(super) level: usize,
    pub(super) bytes: u64,
}

/// The spans of these events, in order. Bytes take the time that the link's rate gives them (`link_bps`, 0 where it has none), so
/// that a link which waits for the prefill is seen to wait. Counts told at one moment share the time up to it by their bytes, the
/// anchor first. Stretches closer than `resolution` seconds become one; a heartbeat or two between them is left out.
pub(super) fn link_spans(events: &[Event], link_bps: u64, resolution: f64) -> Vec<LinkSpan> {
    let mut sent: Vec<(f64, Class, u64)> = Vec::new();
    let mut complete: Vec<f64> = Vec::new();
    for event in events {
        match event {
            Event::Sent { priority, bytes, t } if t.is_finite() => {
                sent.push((*t, *priority, *bytes))
            }
            Event::LevelComplete { t, .. } => complete.push(*t),
            _ => {}
        }
    }
    sent.sort_by(|l, r| l.0.total_cmp(&r.0).then(l.1.cmp(&r.1)));
    let mut spans = Vec::new();
    let mut totals = [0_u64; 2];
    let mut free_at = 0.0_f64;
    for told in sent.chunk_by(|l, r| l.0.total_cmp(&r.0).is_eq()) {
        let end = told[0].0;
        let counts: Vec<(Class, u64)> = told
            .iter()
            .map(|(_, class, total)| {
                let so_far = &mut totals[*class as usize];
                let bytes = total.saturating_sub(*so_far);
                *so_far = (*total).max(*so_far);
                (*class, bytes)
            })
            .collect();
        let all = counts
            .iter()
            .fold(0, |sum: u64, count| sum.saturating_add(count.1));
        let taken = if link_bps > 0 {
            seconds_for(all, link_bps)
        } else {
            resolution
        };
        let mut start = (end - taken).clamp(free_at.min(end), end);
        let per_byte = (end - start) / as_f64(all.max(1));
        for (class, bytes) in counts {
            let part_end = (start + as_f64(bytes) * per_byte).clamp(start, end);
            let level = match class {
                Class::Anchor => 0,
                Class::Residual => complete.iter().filter(|t| **t < end).count().max(1),
            };
            let span = LinkSpan {
                start,
                end: part_end,
                class,
                level,
                bytes,
            };
            append(&mut spans, span, resolution);
            start = part_end;
        }
        free_at = end;
    }
    without_trifles(spans, resolution)
}

/// Leaves out what is too little to be seen, and joins what it had kept apart.
fn without_trifles(spans: Vec<LinkSpan>, resolution: f64) -> Vec<LinkSpan> {
    let all = spans
        .iter()
        .fold(0, |sum: u64, span| sum.saturating_add(span.bytes));
    let mut joined = Vec::new();
    for span in spans.into_iter().filter(|span| span.bytes >= all / 2000) {
        append(&mut joined, span, resolution);
    }
    joined
}

/// Adds a span, or makes the last one longer.
fn append(spans: &mut Vec<LinkSpan>, span: LinkSpan, resolution: f64) {
    match spans.last_mut() {
        _ if span.bytes == 0 => {}
        Some(last)
            if (last.class, last.level) == (span.class, span.level)
                && span.start - last.end <= resolution =>
        {
            last.end = span.end;
            last.bytes = last.bytes.saturating_add(span.bytes);
        }
        _ => spans.push(span),
    }
}

/// How long a link of this rate takes.
fn seconds_for(bytes: u64, link_bps: u64) -> f64 {
    as_f64(bytes) * 8.0 / as_f64(link_bps)
}

#[expect(clippy::cast_precision_loss, reason = "a place on a picture")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(priority: Class, bytes: u64, t: f64) -> Event {
        Event::Sent { priority, bytes, t }
    }

    #[test]
    fn a_link_that_waits_is_seen_to_wait() {
        // 1000 bytes take a second.
        let events = [
            sent(Class::Anchor, 1000, 1.5),
            sent(Class::Anchor, 2000, 2.5),
            sent(Class::Anchor, 2500, 9.0),
        ];
        let spans = link_spans(&events, 8000, 0.01);
        let times: Vec<_> = spans.iter().map(|s| (s.start, s.end, s.bytes)).collect();
        assert_eq!(times, [(0.5, 2.5, 2000), (8.5, 9.0, 500)]);
    }

    #[test]
    fn classes_and_levels_are_told_apart() {
        let events = [
            sent(Class::Anchor, 1000, 1.0),
            sent(Class::Residual, 1000, 2.0),
            Event::LevelComplete { level: 0, t: 1.0 },
            Event::LevelComplete { level: 1, t: 2.0 },
            sent(Class::Residual, 2000, 3.0),
        ];
        let spans = link_spans(&events, 8000, 0.01);
        let levels: Vec<_> = spans.iter().map(|s| (s.class, s.level)).collect();
        assert_eq!(
            levels,
            [
                (Class::Anchor, 0),
                (Class::Residual, 1),
                (Class::Residual, 2)
            ]
        );
    }

    #[test]
    fn counts_of_one_moment_share_its_time() {
        let events = [
            sent(Class::Residual, 1000, 4.0),
            sent(Class::Anchor, 3000, 4.0),
            sent(Class::Anchor, 3000, 5.0),
        ];
        let spans = link_spans(&events, 8000, 0.01);
        let times: Vec<_> = spans.iter().map(|s| (s.class, s.start, s.end)).collect();
        assert_eq!(
            times,
            [(Class::Anchor, 0.0, 3.0), (Class::Residual, 3.0, 4.0)]
        );
    }

    #[test]
    fn heartbeats_are_left_out() {
        let mut events = vec![
            sent(Class::Anchor, 1_000_000, 1.0),
            sent(Class::Residual, 20, 1.0),
            sent(Class::Anchor, 2_000_000, 2.0),
        ];
        events.extend((3..9_u8).map(|t| sent(Class::Residual, 20 * u64::from(t), f64::from(t))));
        let spans = link_spans(&events, 8_000_000, 0.01);
        let times: Vec<_> = spans.iter().map(|s| (s.start, s.end, s.bytes)).collect();
        assert_eq!(times, [(0.0, 2.0, 2_000_000)]);
    }

    #[test]
    fn spans_never_overlap_however_wrong_the_rate() {
        bolero::check!()
            .with_type::<(u32, Vec<(bool, u16, u16)>)>()
            .for_each(|(rate, sends)| {
                let events: Vec<Event> = sends
                    .iter()
                    .map(|(anchor, bytes, t)| {
                        let class = if *anchor {
                            Class::Anchor
                        } else {
                            Class::Residual
                        };
                        sent(class, u64::from(*bytes), f64::from(*t))
                    })
                    .collect();
                let spans = link_spans(&events, u64::from(*rate), 0.0);
                assert!(spans.iter().all(|span| span.start <= span.end));
                assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
            });
    }
}
