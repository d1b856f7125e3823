use super::*;

const WANTED: Wanted = Wanted {
    prompt_tokens: 1000,
    bytes: Bytes::from_mib(8),
};

/// An idle peer of which everything is known.
fn known(peer: u8) -> Candidate<u8> {
    Candidate {
        peer,
        distance: Distance::Unknown,
        cached_tokens: 0,
        queued_tokens: 0,
        token_time: Some(Duration::from_micros(100)),
        pending: Bytes::ZERO,
        rate: Some(BitRate::from_megabits_per_second(1000)),
        transfers: 0,
        begun: 0,
    }
}

fn chosen(candidates: &[Candidate<u8>]) -> u8 {
    let choices = [1, 2, 3, 4].map(|draw| choose(&WANTED, candidates, draw).unwrap());
    assert!(
        choices.iter().all(|choice| *choice == choices[0]),
        "by chance"
    );
    choices[0]
}

#[test]
fn without_a_peer_there_is_no_choice() {
    assert_eq!(choose::<u8>(&WANTED, &[], 1), None);
}

#[test]
fn each_figure_decides_where_it_is_the_only_difference() {
    type Worsen = fn(&mut Candidate<u8>);
    let worse: [(&str, Worsen); 7] = [
        ("queue", |one| one.queued_tokens = 2000),
        ("slow engine", |one| {
            one.token_time = Some(Duration::from_millis(1))
        }),
        ("slow link", |one| {
            one.rate = Some(BitRate::from_megabits_per_second(100))
        }),
        ("busy link", |one| one.pending = Bytes::from_mib(16)),
        ("far away", |one| one.distance = Distance::Far),
        ("more transfers", |one| one.transfers = 1),
        ("more transfers ever", |one| one.begun = 1),
    ];
    for (what, worsen) in worse {
        for (bad, good) in [(0, 1), (1, 0)] {
            let mut candidates = [known(0), known(1)];
            worsen(&mut candidates[bad]);
            assert_eq!(usize::from(chosen(&candidates)), good, "{what}");
        }
    }
}

#[test]
fn a_cached_prefix_wins_while_it_saves_more_than_the_queue_costs() {
    let mut has = known(0);
    has.cached_tokens = 960;
    let mut queue_where_it_changes = None;
    for queued_tokens in 0..2000 {
        has.queued_tokens = queued_tokens;
        if chosen(&[has, known(1)]) == 1 {
            queue_where_it_changes = Some(queued_tokens);
            break;
        }
    }
    // The other one's time is 100 ms of computing and 67 ms of sending: a tenth of that is within the margin, and 2 ms.
    let margin = 187;
    assert!(queue_where_it_changes.unwrap().abs_diff(960 + margin) <= 2);
}

#[test]
fn a_peer_that_is_not_measured_yet_is_tried_and_not_starved() {
    let mut slow = known(0);
    slow.rate = Some(BitRate::from_megabits_per_second(10));
    slow.begun = 1;
    let mut new = known(1);
    (new.rate, new.token_time) = (None, None);
    assert_eq!(chosen(&[slow, new]), 1);
    // But it is no reason to leave a peer that has the prefix, or to pile up work there.
    slow.cached_tokens = 960;
    slow.token_time = Some(Duration::from_millis(100));
    assert_eq!(chosen(&[slow, new]), 0);
    new.pending = Bytes::from_mib(64);
    slow.cached_tokens = 0;
    assert_eq!(chosen(&[slow, new]), 0);
}

#[test]
fn an_unmeasured_link_is_taken_to_be_like_those_of_its_topology() {
    let mut near = known(0);
    near.distance = Distance::Near;
    near.pending = Bytes::from_mib(8);
    let mut far = known(1);
    far.distance = Distance::Far;
    far.rate = Some(BitRate::from_megabits_per_second(100));
    far.pending = Bytes::from_mib(64);
    let mut new = known(2);
    (new.rate, new.distance) = (None, Distance::Far);
    assert_eq!(chosen(&[near, far, new]), 0, "as slow as the other far one");
    new.distance = Distance::Near;
    assert_eq!(
        chosen(&[near, far, new]),
        2,
        "as fast as the other near one"
    );
}

#[test]
fn before_anything_is_measured_a_prefix_and_a_queue_count_already() {
    let new = |peer| Candidate {
        rate: None,
        token_time: None,
        ..known(peer)
    };
    let (mut one, other) = (new(0), new(1));
    one.cached_tokens = 640;
    assert_eq!(chosen(&[one, other]), 0);
    one.queued_tokens = 10_000;
    assert_eq!(chosen(&[one, other]), 1);
}

#[test]
fn topologies_are_near_only_where_both_say_the_same() {
    assert_eq!(Distance::between("a", "a"), Distance::Near);
    assert_eq!(Distance::between("a", "b"), Distance::Far);
    assert_eq!(Distance::between("", ""), Distance::Unknown);
    assert_eq!(Distance::between("a", ""), Distance::Unknown);
}

#[test]
fn equal_peers_get_equally_many_whether_they_are_slow_or_not() {
    for in_flight in [0, 3, 10] {
        let mut candidates: Vec<_> = (0..5).map(known).collect();
        let mut under_way = std::collections::VecDeque::new();
        for draw in 0..500 {
            let peer = choose(&WANTED, &candidates, draw).unwrap();
            let one = &mut candidates[usize::from(peer)];
            one.begun += 1;
            one.transfers += 1;
            one.queued_tokens += 1000;
            under_way.push_back(peer);
            if under_way.len() > in_flight {
                let over = under_way.pop_front().unwrap();
                let one = &mut candidates[usize::from(over)];
                one.transfers -= 1;
                one.queued_tokens -= 1000;
            }
        }
        let begun: Vec<u64> = candidates.iter().map(|one| one.begun).collect();
        assert!(
            begun.iter().all(|begun| begun.abs_diff(100) <= 1),
            "{begun:?}"
        );
    }
}

#[test]
fn agents_that_see_the_same_idle_peers_do_not_all_choose_one() {
    let candidates: Vec<_> = (0..5).map(known).collect();
    let mut counts = [0; 5];
    for agent in 0..1000 {
        counts[usize::from(choose(&WANTED, &candidates, agent).unwrap())] += 1;
    }
    assert!(
        counts.iter().all(|count| (120..=280).contains(count)),
        "{counts:?}"
    );
}

/// Any peer, as a fuzzer sees it.
type Any = (u8, u16, u16, Option<u16>, u16, Option<u16>, u8, u8);

fn any(peer: usize, any: Any) -> Candidate<usize> {
    let (distance, cached, queued, time, pending, rate, transfers, begun) = any;
    Candidate {
        peer,
        distance: [Distance::Near, Distance::Unknown, Distance::Far][usize::from(distance % 3)],
        cached_tokens: cached.into(),
        queued_tokens: queued.into(),
        token_time: time.map(|time| Duration::from_micros(time.into())),
        pending: Bytes::from_kib(pending.into()),
        rate: rate.map(|rate| BitRate::from_megabits_per_second(rate.into())),
        transfers: transfers.into(),
        begun: begun.into(),
    }
}

#[test]
fn whoever_is_chosen_stays_so_when_it_gets_better() {
    bolero::check!()
        .with_type::<(u64, Vec<Any>, u8)>()
        .for_each(|(draw, all, what)| {
            let mut candidates: Vec<_> = all
                .iter()
                .copied()
                .enumerate()
                .map(|(i, a)| any(i, a))
                .collect();
            let Some(chosen) = choose(&WANTED, &candidates, *draw) else {
                assert!(candidates.is_empty());
                return;
            };
            let one = &mut candidates[chosen];
            match what % 5 {
                0 => one.queued_tokens /= 2,
                1 => one.pending = Bytes::new(one.pending.get() / 2),
                2 => one.cached_tokens *= 2,
                3 => one.transfers /= 2,
                _ => one.begun /= 2,
            }
            assert_eq!(choose(&WANTED, &candidates, *draw), Some(chosen));
        });
}

#[test]
fn the_expected_time_grows_with_all_that_is_in_the_way() {
    bolero::check!()
        .with_type::<(Any, u8, u16)>()
        .for_each(|(one, what, more)| {
            let one = any(0, *one);
            let priors = Priors::of(&[one]);
            let mut worse = one;
            let more = u64::from(*more);
            match what % 4 {
                0 => worse.queued_tokens += more,
                1 => worse.pending += Bytes::from_kib(more),
                2 => {
                    worse.token_time = one
                        .token_time
                        .map(|time| time + Duration::from_micros(more))
                }
                _ => {
                    worse.cached_tokens = one
                        .cached_tokens
                        .saturating_sub(u32::try_from(more).unwrap())
                }
            }
            assert!(expected(&WANTED, &worse, &priors) >= expected(&WANTED, &one, &priors));
        });
}

#[test]
fn nobody_is_chosen_who_takes_longer_than_the_margin_allows() {
    bolero::check!()
        .with_type::<(u64, Vec<Any>)>()
        .for_each(|(draw, all)| {
            let candidates: Vec<_> = all
                .iter()
                .copied()
                .enumerate()
                .map(|(i, a)| any(i, a))
                .collect();
            let priors = Priors::of(&candidates);
            let time = |one: &Candidate<usize>| expected(&WANTED, one, &priors);
            if let Some(chosen) = choose(&WANTED, &candidates, *draw) {
                let best = candidates.iter().map(time).fold(f64::INFINITY, f64::min);
                assert!(time(&candidates[chosen]) <= best * 1.1 + 0.002);
            }
        });
}
