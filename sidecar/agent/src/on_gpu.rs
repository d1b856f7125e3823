//! Engines whose KV is in a GPU's memory: units, pools, and two whole agents, with the fake driver.
//!
//! Each test runs in a process of its own that finds the fake driver; what it does there is the ignored test below it.

mod agents;
mod pools;
mod units;

use crate::testing::driver;

#[test]
fn units_are_coded_on_a_gpu_as_on_the_processor() {
    driver::run("on_gpu::units::every_method_gives_the_same_segments_and_values");
}

#[test]
fn a_pool_that_a_gpu_does_not_have_is_refused_with_a_sentence() {
    driver::run("on_gpu::pools::what_is_no_pool_is_refused_by_name");
}

#[test]
fn an_engine_that_ends_its_side_is_told_once_its_memory_is_closed() {
    driver::run("on_gpu::pools::the_stream_ends_after_the_pool");
}

#[test]
fn two_agents_bring_kv_from_gpu_to_gpu_bit_for_bit() {
    driver::run("on_gpu::agents::kv_comes_from_gpu_to_gpu");
}

#[test]
fn what_a_gpu_has_coded_goes_to_a_card_from_where_it_lies() {
    driver::run("on_gpu::agents::a_card_reads_kv_where_a_gpu_has_left_it");
}

#[test]
fn two_agents_bring_kv_between_a_gpu_and_host_memory_bit_for_bit() {
    driver::run("on_gpu::agents::kv_comes_from_a_gpu_to_host_memory");
    driver::run("on_gpu::agents::kv_comes_from_host_memory_to_a_gpu");
}

#[test]
fn fp16_on_a_gpu_is_coded_as_its_bf16() {
    driver::run("on_gpu::units::fp16_gives_the_segments_and_values_of_its_bf16");
}
