//! The tables say what the rows say.

use super::*;

fn row(method: Method, wire_bytes: u64, second: f64, verified: f64) -> TtftRow {
    let drafts = method.drafts();
    TtftRow {
        scenario: Scenario::Warm,
        prompt: "needle-3".to_owned(),
        prompt_tokens: 2048,
        link_bps: 100_000_000,
        method,
        wire_bytes,
        t_first_s: Some(0.05),
        t_second_s: Some(second),
        t_second_verified_s: Some(verified),
        t32_s: Some(verified + 0.75),
        t64_s: None,
        drafted: if drafts { 40 } else { 0 },
        accepted: if drafts { 31 } else { 0 },
        prefill_memory_bytes: None,
        decode_memory_bytes: None,
        equal_to_bf16: Some(matches!(method, Method::Bf16 | Method::LynxExact)),
    }
}

fn rows() -> Vec<TtftRow> {
    vec![
        row(Method::Bf16, 47_185_920, 3.8, 3.8),
        row(Method::Int8, 24_330_240, 1.97, 1.97),
        row(Method::LynxExact, 32_500_000, 1.1, 2.75),
    ]
}

fn printed(write: fn(&mut dyn Write, &[TtftRow]) -> io::Result<()>, rows: &[TtftRow]) -> String {
    let mut out = Vec::new();
    write(&mut out, rows).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_table_fits_100_columns_and_holds_every_figure() {
    let mut all = rows();
    // The widest cells that can be expected.
    all[0].t_first_s = Some(1234.567);
    all[0].wire_bytes = 123 << 30;
    all[2].drafted = 64;
    all[2].accepted = 64;
    let text = printed(write_runs, &all);
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for figure in [
        "123.00 GiB",
        "1234.567",
        "~1.100",
        "2.750",
        "64 of 64",
        "NO",
    ] {
        assert!(text.contains(figure), "{figure} is missing in\n{text}");
    }
}

#[test]
fn a_moment_that_no_method_has_reached_has_no_column() {
    let text = printed(write_runs, &rows());
    assert!(text.contains("32nd") && !text.contains("64th"), "{text}");
}

#[test]
fn ratios_say_sooner_and_later() {
    let text = printed(write_runs, &rows());
    let cells = |start: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(start)).unwrap();
        let cells = line[start.len()..].split("  ").map(str::trim);
        cells
            .filter(|cell| !cell.is_empty())
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(
        cells("Lynx exact against BF16"),
        ["0.69x", "3.45x sooner", "1.38x sooner", "1.30x sooner"]
    );
    assert_eq!(
        cells("Lynx exact against INT8"),
        ["1.34x", "1.79x sooner", "1.40x later", "1.29x later"]
    );
}

#[test]
fn what_was_not_reached_is_a_dash() {
    let mut all = rows();
    all[1].t_second_s = None;
    let text = printed(write_runs, &all);
    let int8 = text.lines().find(|line| line.starts_with("INT8")).unwrap();
    assert!(int8.contains("  -  "), "{int8}");
}

#[test]
fn a_summary_averages_over_prompts_and_omits_what_one_lacks() {
    let mut all = rows();
    let mut second = rows();
    for row in &mut second {
        row.prompt = "minutes".to_owned();
        row.t32_s = None;
    }
    second[2].t_second_s = Some(3.8 / (3.8 / 1.1) * 4.0);
    all.extend(second);
    let text = printed(write_summary, &all);
    let exact = text.lines().find(|l| l.starts_with("Lynx exact")).unwrap();
    let cells: Vec<&str> = exact.split_whitespace().skip(2).collect();
    // 3.45x on one prompt and a quarter of that on the other: the geometric mean is half of it.
    assert_eq!(
        cells,
        [
            "68.9", "%", "1.73x", "1.38x", "-", "-", "62", "of", "80", "2", "of", "2"
        ]
    );
}

#[test]
fn settings_keep_their_order_and_their_rows() {
    let mut all = rows();
    let mut cold = rows();
    for row in &mut cold {
        row.scenario = Scenario::Cold;
        row.link_bps = 0;
    }
    all.splice(1..1, cold);
    let groups = by_setting(&all);
    assert_eq!(groups.len(), 2);
    assert!(groups.iter().all(|rows| rows.len() == 3));
    let text = printed(write_runs, &all);
    assert!(text.contains("cold (prefill while sending), unlimited link"));
}

#[test]
fn lengths_are_not_averaged_with_each_other() {
    let mut all = rows();
    let mut longer = rows();
    for row in &mut longer {
        row.prompt_tokens = 4090;
        row.t_second_s = Some(2.0);
    }
    all.extend(longer);
    let runs = printed(write_runs, &all);
    assert!(runs.contains("2048 prompt tokens") && runs.contains("4090 prompt tokens"));
    let summary = printed(write_summary, &all);
    assert!(
        summary.contains("1 prompt of up to 2048 tokens"),
        "{summary}"
    );
    assert!(
        summary.contains("1 prompt of up to 4096 tokens"),
        "{summary}"
    );
}

#[test]
fn ratios_near_one_are_as_soon() {
    assert_eq!(sooner(1.004), "as soon");
    assert_eq!(sooner(0.5), "2.00x later");
    assert_eq!(sooner(2.0), "2.00x sooner");
}
