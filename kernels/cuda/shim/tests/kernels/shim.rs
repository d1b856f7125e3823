//! The shim itself.

use lynx_cuda_shim::{Planted, planted, unequal_quotients};

#[test]
fn a_kernel_without_mistakes_passes_in_any_order_of_lanes() {
    for seed in 0..20 {
        assert_eq!(planted(Planted::Nothing, seed), Ok(()));
    }
}

#[test]
fn planted_mistakes_are_noticed() {
    for (which, expected) in [
        (Planted::DivergentShuffle, "meet in different calls"),
        (Planted::EarlyReturn, "wait for others that never come"),
        (Planted::TwoBarriers, "meet at different barriers"),
        (Planted::Misaligned, "isn't aligned"),
        (Planted::NoBarrier, "read before it was written"),
    ] {
        for seed in 0..5 {
            let said = planted(which, seed).unwrap_err();
            assert!(said.contains(expected), "{which:?}: {said}");
        }
    }
    assert_eq!(
        planted(Planted::Nothing, 2),
        Ok(()),
        "nothing is left behind"
    );
}

#[test]
fn the_quotient_by_240_is_rounded_as_a_division_is() {
    assert_eq!(unequal_quotients(), 0);
}
