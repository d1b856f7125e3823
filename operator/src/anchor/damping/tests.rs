use super::*;

const TICK: Duration = Duration::from_secs(2);

fn width(eighths: u8) -> Width {
    Width::from_eighths(eighths).unwrap()
}

/// Runs for `ticks` with the wish of each tick; gives the widths after each.
fn run(damped: &mut Damped, ticks: u32, wish: impl Fn(u32) -> Width) -> Vec<Width> {
    let limits = Limits::default();
    (0..ticks)
        .map(|tick| {
            let now = Timestamp::ORIGIN + TICK * tick;
            damped.follow(wish(tick), &limits, now);
            damped.width()
        })
        .collect()
}

fn turns(widths: &[Width]) -> usize {
    let mut steps: Vec<_> = widths
        .windows(2)
        .filter(|pair| pair[0] != pair[1])
        .map(|pair| pair[0] < pair[1])
        .collect();
    steps.dedup();
    steps.len().saturating_sub(1)
}

#[test]
fn a_lasting_wish_is_met_in_small_steps() {
    let mut damped = Damped::new(width(32));
    let widths = run(&mut damped, 15, |_| width(20));
    assert!(widths.windows(2).all(|pair| pair[0] >= pair[1]));
    assert!(
        widths
            .windows(2)
            .all(|pair| pair[0].eighths() - pair[1].eighths() <= Limits::default().step)
    );
    assert_eq!(damped.width(), width(20));
}

#[test]
fn a_short_wish_moves_nothing() {
    let mut damped = Damped::new(width(32));
    let widths = run(&mut damped, 100, |tick| {
        width(if tick % 3 == 0 { 20 } else { 32 })
    });
    assert!(widths.iter().all(|now| *now == width(32)));
}

#[test]
fn a_link_that_flaps_at_any_pace_turns_the_width_a_few_times_an_hour() {
    bolero::check!()
        .with_type::<(u8, u8, u8)>()
        .for_each(|(half_period, low, high)| {
            let half_period = u32::from(*half_period) + 1;
            let (low, high) = (width(low % 65), width(high % 65));
            let mut damped = Damped::new(width(32));
            let widths = run(&mut damped, 1800, |tick| {
                if (tick / half_period).is_multiple_of(2) {
                    low
                } else {
                    high
                }
            });
            assert!(turns(&widths) <= 11, "{} turns", turns(&widths));
        });
}

#[test]
fn any_wishes_keep_the_width_between_them_once_it_is_there() {
    bolero::check!()
        .with_type::<Vec<u8>>()
        .for_each(|wishes: &Vec<u8>| {
            let wishes: Vec<_> = wishes.iter().map(|wish| width(16 + wish % 33)).collect();
            let mut damped = Damped::new(width(32));
            let limits = Limits::default();
            for (tick, wish) in (0u32..).zip(&wishes) {
                damped.follow(*wish, &limits, Timestamp::ORIGIN + TICK * tick);
                assert!((16..=48).contains(&damped.width().eighths()));
            }
        });
}

#[test]
fn patience_comes_back_after_a_quiet_time() {
    let mut damped = Damped::new(width(32));
    run(&mut damped, 3000, |tick| {
        width(if (tick / 60).is_multiple_of(2) {
            20
        } else {
            40
        })
    });
    let limits = Limits::default();
    let much_later = Timestamp::from_origin(Duration::from_secs(100_000));
    let quiet = damped.patience(&limits, much_later);
    assert_eq!(quiet, limits.turn);
}
