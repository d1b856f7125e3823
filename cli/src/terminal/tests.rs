//! What a reader sees, checked on a small model of a terminal.

use unicode_width::UnicodeWidthChar as _;

use super::*;

fn token(index: u32, text: &str, provisional: bool) -> Event {
    Event::Token {
        index,
        token: index,
        text: text.to_owned(),
        t: 0.0,
        provisional,
    }
}

/// Two drafts stand, two are replaced by one.
fn a_corrected_draft() -> Vec<Event> {
    vec![
        token(0, "The", false),
        token(1, " code", true),
        token(2, " is", true),
        token(3, " not", true),
        token(4, " known", true),
        Event::Verify {
            tokens: 4,
            accepted: 2,
            start: 0.0,
            end: 0.0,
        },
        Event::Retracted {
            from_index: 3,
            t: 0.0,
        },
        token(1, " code", false),
        token(2, " is", false),
        token(3, " 83823", false),
        Event::Finished { t: 0.0 },
    ]
}

fn written(style: Style, events: &[Event]) -> String {
    let mut out = Vec::new();
    let mut answer = Answer::new(&mut out, style);
    for event in events {
        answer.on_event(event).unwrap();
    }
    String::from_utf8(out).unwrap()
}

/// A terminal that knows what `Answer` sends: what is on it, and for each character whether it is dim.
#[derive(Default)]
struct Model {
    lines: Vec<Vec<(char, bool)>>,
    row: usize,
    column: usize,
    dim: bool,
}

impl Model {
    fn of(output: &str) -> Self {
        let mut model = Self::default();
        let mut chars = output.chars();
        while let Some(c) = chars.next() {
            model
                .lines
                .resize(model.lines.len().max(model.row + 1), Vec::new());
            match c {
                '\r' => model.column = 0,
                '\n' => model.row += 1,
                '\x1b' => {
                    assert_eq!(chars.next(), Some('['));
                    let mut count = String::new();
                    let command = loop {
                        match chars.next().unwrap() {
                            digit if digit.is_ascii_digit() => count.push(digit),
                            command => break command,
                        }
                    };
                    model.control(command, count.parse().unwrap_or(0));
                }
                c => model.put(c),
            }
        }
        model
    }

    /// A wide character takes the cell after its own too; one without width is not modelled.
    fn put(&mut self, c: char) {
        let width = c.width().unwrap_or(0);
        let line = &mut self.lines[self.row];
        line.resize(line.len().max(self.column + width), (' ', false));
        for (place, cell) in line[self.column..].iter_mut().take(width).enumerate() {
            *cell = (if place == 0 { c } else { '_' }, self.dim);
        }
        self.column += width;
    }

    fn control(&mut self, command: char, count: usize) {
        match (command, count) {
            ('A', rows) => self.row -= rows,
            ('C', columns) => self.column += columns,
            ('m', 2) => self.dim = true,
            ('m', 22) => self.dim = false,
            ('J', 0) => {
                self.lines.truncate(self.row + 1);
                self.lines[self.row].truncate(self.column);
            }
            other => panic!("unknown sequence {other:?}"),
        }
    }

    fn text(&self) -> String {
        let lines: Vec<String> = self
            .lines
            .iter()
            .map(|line| line.iter().map(|(c, _)| c).collect())
            .collect();
        lines.join("\n")
    }

    fn dim_text(&self) -> String {
        let cells = self.lines.iter().flatten();
        cells.filter(|(_, dim)| *dim).map(|(c, _)| c).collect()
    }
}

#[test]
fn a_terminal_shows_drafts_dimmed_and_then_what_is_true() {
    let events = a_corrected_draft();
    let style = Style::Terminal { columns: 40 };
    let drafted = Model::of(&written(style, &events[..5]));
    assert_eq!(drafted.text(), "The code is not known");
    assert_eq!(drafted.dim_text(), " code is not known");
    let retracted = Model::of(&written(style, &events[..7]));
    assert_eq!(retracted.text(), "The code is");
    let done = Model::of(&written(style, &events));
    assert_eq!(done.text().trim_end(), "The code is 83823");
    assert_eq!(done.dim_text(), "");
}

#[test]
fn a_draft_over_several_lines_is_replaced_whole() {
    let style = Style::Terminal { columns: 20 };
    let words = |from: u32, to: u32, provisional| {
        (from..to).map(move |index| token(index, &format!(" word{index}"), provisional))
    };
    let mut events: Vec<Event> = words(0, 3, false).collect();
    events.extend(words(3, 30, true));
    events.push(Event::Retracted {
        from_index: 4,
        t: 0.0,
    });
    events.push(token(3, " word3", false));
    events.push(token(4, " end", false));
    let model = Model::of(&written(style, &events));
    assert_eq!(model.text(), " word0 word1 word2\nword3 end");
    let widest = model.lines.iter().map(Vec::len).max();
    assert!(widest <= Some(19), "the last column stays free");
}

#[test]
fn a_pipe_gets_marked_drafts_and_no_control_sequence() {
    let text = written(Style::Plain, &a_corrected_draft());
    assert_eq!(
        text,
        "The\n[draft]  code is not known\n[verified]  code is 83823\n"
    );
}

#[test]
fn without_drafts_a_pipe_gets_the_answer_alone() {
    let events = [
        token(0, "One\n", false),
        token(1, "two", false),
        Event::Finished { t: 0.0 },
    ];
    assert_eq!(written(Style::Plain, &events), "One\ntwo\n");
}

#[test]
fn a_model_can_not_steer_the_terminal() {
    let hostile = "a\x1b[2J\x07\r\u{202e}b\u{9b}31m";
    for style in [Style::Plain, Style::Terminal { columns: 80 }] {
        let text = written(style, &[token(0, hostile, false)]);
        let ours = text.replace("\x1b[J", "").replace("\x1b[2m", "");
        let ours = ours.replace("\x1b[22m", "").replace('\r', "");
        assert!(!ours.contains(char::is_control), "{ours:?}");
        assert!(!ours.contains('\u{202e}'));
    }
}

#[test]
fn colours_are_for_terminals_whose_user_wants_them() {
    assert_eq!(Style::choose(None, false), Style::Plain);
    assert_eq!(Style::choose(Some(80), true), Style::Plain);
    assert_eq!(Style::choose(Some(5), false), Style::Plain);
    let terminal = Style::Terminal { columns: 80 };
    assert_eq!(Style::choose(Some(80), false), terminal);
    assert!(Style::Plain.progress("prefill", 3).is_hidden());
}

#[test]
fn any_drafts_end_in_the_verified_text() {
    bolero::check!()
        .with_type::<(u8, Vec<(String, String)>)>()
        .for_each(|(columns, tokens)| {
            let style = Style::Terminal {
                columns: u16::from(*columns).max(20),
            };
            let numbered = || tokens.iter().zip(0_u32..);
            let mut events: Vec<Event> = numbered()
                .map(|((draft, _), index)| token(index, draft, true))
                .collect();
            let verified = numbered().map(|((_, text), index)| token(index, text, false));
            events.extend(verified.clone());
            let redrawn = Model::of(&written(style, &events));
            let direct: Vec<Event> = verified.collect();
            assert_eq!(redrawn.text(), Model::of(&written(style, &direct)).text());
            assert_eq!(redrawn.dim_text(), "");
        });
}
