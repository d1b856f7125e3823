//! The page of made-up runs: self-contained, harmless, and true to the runs.

#[path = "../examples/timeline/sample.rs"]
mod sample;

use lynx::report::Page;
use lynx::run::{Event, Method, RunResult, Scenario};

fn count(html: &str, what: &str) -> usize {
    html.matches(what).count()
}

#[test]
fn the_page_fetches_nothing_and_styles_nothing_inline() {
    let html = sample::page().html();
    for fetch in [
        "http:", "https:", "src=", "href=", "url(", "@import", "style=",
    ] {
        assert_eq!(count(&html, fetch), 0, "{fetch}");
    }
    assert_eq!(count(&html, "<script>"), 1);
    assert!(html.contains("default-src 'none'; style-src 'sha256-"));
}

#[test]
fn every_method_has_its_lanes_in_every_section() {
    let page = sample::page();
    let html = page.html();
    assert_eq!(count(&html, "<section>"), 2);
    for method in Method::ALL {
        let lanes = format!("<div class=\"method {}\">", method.id());
        assert_eq!(count(&html, &lanes), 2, "{method}");
    }
    let events = page.runs.iter().flat_map(|run| &run.events);
    let drafts = events.filter(|event| matches!(event, Event::Draft { .. }));
    assert_eq!(count(&html, "<rect class=\"draft\""), drafts.count());
}

#[test]
fn every_place_is_on_the_axis() {
    let html = sample::page().html();
    let places = html
        .split(" x=\"")
        .skip(1)
        .chain(html.split(" x1=\"").skip(1));
    for place in places {
        let percent = place.split_once('%').unwrap().0;
        let percent: f64 = percent.parse().unwrap();
        assert!((0.0..=100.0).contains(&percent), "{percent}");
    }
}

#[test]
fn hostile_texts_stay_texts() {
    let hostile = "</title><script>alert(1)</script><img onerror='x'>\"&";
    let page = Page {
        title: hostile.to_owned(),
        facts: vec![(hostile.to_owned(), hostile.to_owned())],
        runs: vec![RunResult {
            method: Method::LynxInt8,
            scenario: Scenario::Warm,
            prompt: hostile.to_owned(),
            prompt_tokens: 1,
            link_bps: 1,
            memory_bytes: [None; 2],
            answer: Vec::new(),
            events: vec![
                Event::Token {
                    index: 0,
                    token: 0,
                    text: hostile.to_owned(),
                    t: f64::NAN,
                    provisional: true,
                },
                Event::Token {
                    index: 0,
                    token: 0,
                    text: hostile.to_owned(),
                    t: 1.0,
                    provisional: false,
                },
                Event::Retracted {
                    from_index: 0,
                    t: 1.0,
                },
                Event::Draft {
                    index: u32::MAX,
                    start: -5.0,
                    end: f64::INFINITY,
                },
            ],
        }],
        prompts: vec![(hostile.to_owned(), hostile.to_owned())],
    };
    let html = page.html();
    assert_eq!(count(&html, "<script>"), 1, "the page's own");
    assert_eq!(count(&html, "<img"), 0);
    assert_eq!(count(&html, "onerror='"), 0);
    assert!(count(&html, "&lt;script&gt;alert(1)&lt;/script&gt;") >= 6);
    assert_eq!(count(&html, "NaN%"), 0);
}

#[test]
fn answers_mark_where_they_leave_bf16s() {
    let html = sample::page().html();
    // INT8, INT4 and Lynx int8 in both sections.
    assert_eq!(count(&html, "<mark>"), 6);
    assert!(html.contains("<i class=later>no</i>, from token 12"));
    assert!(html.contains("<del>&lt;b&gt;maybe&lt;/b&gt; "));
}

#[test]
fn a_page_without_runs_is_a_page() {
    let html = Page::default().html();
    assert_eq!(count(&html, "<section>"), 0);
    assert!(html.ends_with("</html>\n"));
}
