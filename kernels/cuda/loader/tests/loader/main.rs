//! The loader, with a library in the driver's place that runs the kernels on the CPU, and with none.
#![cfg(test)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    dead_code,
    unsafe_code,
    reason = "tests: values are small, and memory is handed to kernels"
)]

#[path = "../../../../tests/codec/common.rs"]
mod common;
mod fake;
mod on_gpu;
mod order;
mod registered;
mod sharing;

use lynx_cuda::{Choice, Options, Why, choose};

#[test]
fn without_a_driver_the_processor_is_chosen_and_the_reason_said() {
    let choice = choose(&Options::default());
    let said = choice.to_string();
    match choice {
        Choice::Processor(Why::NoDriver) => assert_eq!(
            said,
            "on the processor: there is no CUDA driver (libcuda.so.1) in this container"
        ),
        // A machine with a driver.
        Choice::Processor(_) => assert!(said.starts_with("on the processor: ")),
        Choice::Gpu(..) => assert!(said.starts_with("on ")),
    }
}

#[test]
fn a_gpu_codes_as_the_processor_does() {
    fake::run("on_gpu::units_are_coded_as_the_processor_codes_them");
}

#[test]
fn a_gpu_refuses_what_the_processor_refuses() {
    fake::run("on_gpu::wrong_segments_are_refused");
}

#[test]
fn memory_streams_and_recorded_launches_are_given_back() {
    fake::run_in_orders("on_gpu::the_driver_is_left_as_it_was_found", 0..4);
}

#[test]
fn an_event_puts_two_streams_in_order_whatever_comes_first_without_it() {
    fake::run_in_orders("order::an_event_comes_before_what_waits_for_it", 0..8);
}

#[test]
fn a_wait_that_is_missing_is_noticed() {
    fake::run_in_orders("order::without_the_event_values_are_read_too_early", 0..8);
}

#[test]
fn nothing_is_there_before_somebody_waits() {
    fake::run_in_orders("order::a_copy_is_done_when_it_is_waited_for", 0..8);
}

#[test]
fn a_copy_that_is_refused_half_way_leaves_nothing_under_way() {
    fake::run_in_orders("order::what_was_begun_is_over_when_a_copy_is_refused", 0..4);
}

#[test]
fn a_bench_takes_the_time_of_work_that_is_done() {
    fake::run_in_orders("order::a_pass_is_over_when_it_returns", 0..8);
}

#[test]
fn segments_go_into_registered_memory_without_a_detour() {
    fake::run_in_orders("registered::a_split_comes_where_it_is_wanted", 0..4);
}

#[test]
fn several_units_go_into_registered_memory_in_one_launch() {
    fake::run("registered::several_units_come_one_behind_the_other");
}

#[test]
fn memory_that_can_not_be_registered_costs_a_detour_and_no_bit() {
    fake::run("registered::what_is_refused_is_copied");
}

#[test]
fn fp16_is_coded_as_its_bf16() {
    fake::run("on_gpu::fp16_is_coded_as_its_bf16");
}

#[test]
fn units_of_one_plan_are_recorded_once() {
    fake::run("on_gpu::each_plan_is_recorded_once");
}

#[test]
fn a_layers_k_and_v_are_one_launch() {
    fake::run_in_orders(
        "on_gpu::k_and_v_are_coded_as_the_processor_codes_them_in_one_launch",
        0..4,
    );
}

#[test]
fn what_is_recorded_neither_waits_nor_allocates() {
    fake::run("on_gpu::a_split_is_recorded_and_repeated_as_launches_alone");
}

#[test]
fn a_bench_measures_what_the_processor_would_make() {
    fake::run("on_gpu::what_is_measured_is_what_the_processor_makes");
}

#[test]
fn memory_goes_from_process_to_process_as_a_descriptor() {
    fake::run("sharing::a_descriptor_maps_the_same_memory_again");
    fake::run("sharing::a_descriptor_is_of_its_memory_alone");
}

#[test]
fn memory_of_an_engines_process_is_coded_by_its_agents() {
    fake::run("sharing::an_engines_memory_is_coded_by_another_process");
}

#[test]
fn memory_is_exported_as_a_dma_buf() {
    fake::run("sharing::an_adapter_is_given_memory_as_a_dma_buf");
}

#[test]
fn a_gpu_is_found_by_the_number_that_it_has_everywhere() {
    fake::run("sharing::a_gpu_has_one_number_everywhere");
}

#[test]
fn without_kernels_the_processor_is_chosen() {
    fake::run("on_gpu::missing_kernels_are_a_reason");
}

#[test]
fn a_driver_without_a_function_is_a_reason_and_no_panic() {
    fake::run_with_another_library("on_gpu::another_library_is_a_reason");
}
