//! Profiles of any content: what is accepted is written and read back as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lynx_kernels::Profile;
use lynx_units::Width;

fuzz_target!(|text: &str| {
    let Ok(profile) = Profile::from_json(text) else {
        return;
    };
    let written = profile
        .to_json()
        .expect("an accepted profile can be written");
    let read = Profile::from_json(&written).expect("a written profile can be read");
    assert_eq!(read, profile);
    assert_eq!(read.hash(), profile.hash());
    for eighths in 0..=64 {
        let mean = Width::from_eighths(eighths).expect("up to eight bits");
        assert!(profile.cuts(mean).mean() <= mean.bits().max(1.0));
    }
});
