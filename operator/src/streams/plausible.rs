//! What is taken of an agent's report: no more text than a status has room for, no more of anything than there can be.
//!
//! An agent that reports nonsense, by a fault or on purpose, is to spoil its own deployment's figures at most.

use lynx_proto::operator::v1::Report;

/// The longest text, in bytes: a sentence and a long path.
const TEXT: usize = 1024;
/// The most links of one agent.
const LINKS: usize = 1024;
/// The widest anchor, in eighths of a bit.
const WIDEST: u32 = 64;
/// So many widths there are.
const WIDTHS: usize = 65;

/// The report, cut to what there can be.
pub(super) fn report(mut report: Report) -> Report {
    shorten(&mut report.attach_error);
    report.links.truncate(LINKS);
    for link in &mut report.links {
        for text in [&mut link.peer, &mut link.transport, &mut link.error] {
            shorten(text);
        }
    }
    report
        .drafts_by_width
        .retain(|of| of.anchor_eighths <= WIDEST);
    report.drafts_by_width.truncate(WIDTHS);
    if report.anchor_eighths > WIDEST {
        report.anchor_eighths = 0;
    }
    report
}

fn shorten(text: &mut String) {
    if text.len() > TEXT {
        text.truncate(text.floor_char_boundary(TEXT));
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use lynx_proto::operator::v1::Link;

    use super::*;

    #[test]
    fn a_report_without_measure_is_cut() {
        let huge = "ä".repeat(3_000_000);
        let link = Link {
            error: huge.clone(),
            ..Link::default()
        };
        let cut = report(Report {
            attach_error: huge,
            links: vec![link; 2000],
            anchor_eighths: u32::MAX,
            ..Report::default()
        });
        assert!(cut.attach_error.len() <= TEXT + '…'.len_utf8());
        assert_eq!((cut.links.len(), cut.anchor_eighths), (LINKS, 0));
        assert!(cut.links[0].error.len() <= TEXT + '…'.len_utf8());
    }
}
