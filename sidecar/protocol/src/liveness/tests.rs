use alloc::vec::Vec;
use core::time::Duration;

use bolero::TypeGenerator;

use super::*;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(millis))
}

#[test]
fn each_connection_speaks_every_half_second() {
    let mut liveness = Liveness::new(at(0));
    for on in Priority::ALL {
        assert!(liveness.take_beat(on));
        assert!(!liveness.take_beat(on));
    }
    assert_eq!(liveness.next(), at(500));
    assert_eq!(liveness.on_timeout(at(499)), None);
    assert!(!liveness.take_beat(Priority::Residual));
    assert_eq!(liveness.on_timeout(at(500)), None);
    assert!(liveness.take_beat(Priority::Residual));
    assert_eq!(liveness.next(), at(1000));
}

#[test]
fn one_silent_connection_is_enough_and_is_noticed_before_two_seconds() {
    let mut liveness = Liveness::new(at(0));
    liveness.on_heard(Priority::Anchor, at(1500));
    assert_eq!(liveness.on_timeout(at(1799)), None);
    assert_eq!(liveness.next(), at(1800));
    assert_eq!(liveness.on_timeout(at(1800)), Some(Priority::Residual));
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Op {
    Heard { residual: bool },
    TakeBeat { residual: bool },
    Pass { millis: u16 },
}

fn on(residual: bool) -> Priority {
    Priority::ALL[usize::from(residual)]
}

#[test]
fn silence_is_what_a_list_of_moments_says_and_every_interval_has_a_beat() {
    bolero::check!().with_type::<Vec<Op>>().for_each(|ops| {
        let mut liveness = Liveness::new(at(0));
        let mut now = at(0);
        let mut heard = [alloc::vec![at(0)], alloc::vec![at(0)]];
        // When each connection last became due to speak, and whether it has spoken since.
        let (mut due_at, mut due) = (at(0), [true; 2]);
        for op in ops {
            match *op {
                Op::Heard { residual } => {
                    liveness.on_heard(on(residual), now);
                    heard[usize::from(residual)].push(now);
                }
                Op::TakeBeat { residual } => {
                    let expected = core::mem::take(&mut due[usize::from(residual)]);
                    assert_eq!(liveness.take_beat(on(residual)), expected);
                }
                Op::Pass { millis } => {
                    now += Duration::from_millis(u64::from(millis % 1024));
                    if now - due_at >= HEARTBEAT_INTERVAL {
                        (due_at, due) = (now, [true; 2]);
                    }
                    let silent = Priority::ALL.into_iter().find(|on| {
                        heard[on.index()]
                            .iter()
                            .all(|&heard| now - heard >= SILENCE_LIMIT)
                    });
                    assert_eq!(liveness.on_timeout(now), silent);
                    if silent.is_some() {
                        return;
                    }
                    assert!(liveness.next() > now && liveness.next() <= now + HEARTBEAT_INTERVAL);
                }
            }
        }
    });
}
