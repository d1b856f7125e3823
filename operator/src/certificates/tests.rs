use lynx_tls::{Files, Loaded, UnixTime};

use super::*;

const NAME: &str = "spiffe://cluster.local/ns/team/lynx/smol";
const LIVES: Lives = Lives {
    leaf_seconds: 3_000,
    authority_seconds: 30_000,
    overlap_seconds: 100,
};
const START: i64 = 1_800_000_000;

fn next(old: Option<&State>, now: i64) -> State {
    follow(old.cloned(), NAME, LIVES, now).unwrap()
}

fn clock(now: i64) -> UnixTime {
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.try_into().unwrap()))
}

/// What an agent says to files of this state, where it judges them by the bundle of another.
fn judged(leaf: &State, bundle: &State, now: i64) -> Result<(), String> {
    let files = Files::new(
        leaf.leaf.certificate.as_bytes(),
        leaf.leaf.key.as_bytes(),
        bundle.bundle().as_bytes(),
    );
    let loaded = Loaded::new(&files, Some(NAME), clock(now));
    loaded.map(drop).map_err(|error| error.to_string())
}

#[test]
fn agents_take_what_is_issued() {
    let state = next(None, START);
    assert_eq!(judged(&state, &state, START), Ok(()));
    let other = next(None, START);
    assert!(
        judged(&state, &other, START).is_err(),
        "authorities are each their own"
    );
}

#[test]
fn nothing_happens_before_it_is_due() {
    let state = next(None, START);
    assert_eq!(state.due(LIVES), START + 2_000);
    assert_eq!(next(Some(&state), START + 1_999), state);
    let renewed = next(Some(&state), START + 2_000);
    assert_ne!(renewed.leaf, state.leaf);
    assert_eq!(renewed.authority, state.authority);
    assert!(renewed.leaf.until > START + 3_000);
}

#[test]
fn at_no_time_of_several_years_does_an_agent_that_lags_refuse_another() {
    let mut states = vec![(START, next(None, START))];
    let mut authorities = 1;
    let mut now = START;
    while now < START + 200_000 {
        let (_, last) = states.last().unwrap();
        now = last.due(LIVES).max(now + 1);
        let state = next(Some(last), now);
        assert!(state.due(LIVES) > now, "it would be looked at for ever");
        authorities += u32::from(state.authority != last.authority);
        states.push((now, state));
    }
    assert!(authorities > 5, "{authorities}");
    // Two agents may have any two states of the last overlap.
    for (index, (now, newest)) in states.iter().enumerate() {
        let lagging = states[..index]
            .windows(2)
            .filter(|pair| pair[1].0 + i64::from(LIVES.overlap_seconds) > *now)
            .map(|pair| &pair[0].1);
        for older in lagging {
            assert_eq!(judged(newest, older, *now), Ok(()), "{older:?} {newest:?}");
            assert_eq!(judged(older, newest, *now), Ok(()), "{older:?} {newest:?}");
        }
    }
}

#[test]
fn an_authority_that_ended_and_another_name_begin_anew() {
    let state = next(None, START);
    let late = next(Some(&state), START + 40_000);
    assert_eq!(judged(&late, &late, START + 40_000), Ok(()));
    let renamed = follow(Some(state.clone()), "spiffe://other", LIVES, START + 1).unwrap();
    assert_ne!(renamed.authority, state.authority);
}

#[test]
fn no_key_is_printed() {
    let state = next(None, START);
    assert!(!format!("{state:?}").contains("PRIVATE"));
}
