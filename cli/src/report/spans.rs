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
/// that a link which waits for the prefill is seen to wait. Stretches closer than `resolution` seconds become one.
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
    sent.sort_by(|l, r| l.0.total_cmp(&r.0));
    let mut spans: Vec<LinkSpan> = Vec::new();
    let mut totals = [0_u64; 2];
    let mut free_at = 0.0_f64;
    for (end, class, total) in sent {
        let so_far = &mut totals[class as usize];
        let bytes = total.saturating_sub(*so_far);
        *so_far = total.max(*so_far);
        let start = (end - seconds_for(bytes, link_bps)).clamp(free_at.min(end), end);
        let level = match class {
            Class::Anchor => 0,
            Class::Residual => complete.iter().filter(|t| **t < end).count().max(1),
        };
        free_at = end;
        match spans.last_mut() {
            Some(last)
                if (last.class, last.level) == (class, level) && start - last.end <= resolution =>
            {
                last.end = end;
                last.bytes = last.bytes.saturating_add(bytes);
            }
            _ => spans.push(LinkSpan {
                start,
                end,
                class,
                level,
                bytes,
            }),
        }
    }
    spans
}

/// How long the link takes; without a limit, no time that could be told.
#[expect(clippy::cast_precision_loss, reason = "a place on a picture")]
fn seconds_for(bytes: u64, link_bps: u64) -> f64 {
    if link_bps == 0 {
        return 0.0;
    }
    bytes as f64 * 8.0 / link_bps as f64
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
