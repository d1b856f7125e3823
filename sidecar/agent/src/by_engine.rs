//! Engines that code by themselves: units, what they may answer, and two whole agents.

mod agents;
mod units;

use crate::testing::driver;

#[test]
fn two_agents_bring_kv_between_engines_that_code_on_their_gpus_bit_for_bit() {
    driver::run("by_engine::agents::kv_comes_from_gpu_to_gpu_by_the_engines_alone");
}
