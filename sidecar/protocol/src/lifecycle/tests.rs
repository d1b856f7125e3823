use alloc::format;
use alloc::string::String;
use core::fmt::{Debug, Write as _};

use super::*;

/// One line per state and input: the state that follows, or why none does.
fn matrix<S: Copy + Debug, I: Copy + Debug>(
    states: &[S],
    inputs: &[I],
    step: fn(S, I) -> Result<S, Refused>,
) -> String {
    let mut text = format!("{:14}", "");
    for input in inputs {
        write!(text, " {:14}", format!("{input:?}")).unwrap();
    }
    for &state in states {
        write!(text, "\n{:14}", format!("{state:?}")).unwrap();
        for &input in inputs {
            let cell = match step(state, input) {
                Ok(next) => format!("{next:?}"),
                Err(Refused::Late) => String::from("-"),
                Err(Refused::Illegal) => String::from("illegal"),
            };
            write!(text, " {cell:14}").unwrap();
        }
    }
    text.lines()
        .map(str::trim_end)
        .fold(String::new(), |text, line| text + line + "\n")
}

#[test]
fn a_senders_transfer_takes_these_steps_and_no_others() {
    use Sending as S;
    use SendingInput as I;
    let states = [
        S::Offered,
        S::Streaming,
        S::Sent,
        S::Complete,
        S::Failed,
        S::Cancelled,
    ];
    let inputs = [
        I::Accept,
        I::Reject,
        I::AllSent,
        I::Done,
        I::Cancel,
        I::Fail,
    ];
    insta::assert_snapshot!(matrix(&states, &inputs, S::step), @r"
                   Accept         Reject         AllSent        Done           Cancel         Fail
    Offered        Streaming      Failed         illegal        illegal        Cancelled      Failed
    Streaming      illegal        illegal        Sent           illegal        Cancelled      Failed
    Sent           illegal        illegal        illegal        Complete       Cancelled      Failed
    Complete       -              -              -              -              -              -
    Failed         -              -              -              -              -              -
    Cancelled      -              -              -              -              -              -
    ");
}

#[test]
fn a_receivers_transfer_takes_these_steps_and_no_others() {
    use Receiving as R;
    use ReceivingInput as I;
    let states = [
        R::Offered,
        R::AwaitingAnchor,
        R::AwaitingRest,
        R::Complete,
        R::Rejected,
        R::Failed,
        R::Cancelled,
    ];
    let inputs = [
        I::Accept,
        I::Reject,
        I::Anchor,
        I::Everything,
        I::Cancel,
        I::Fail,
    ];
    insta::assert_snapshot!(matrix(&states, &inputs, R::step), @r"
                   Accept         Reject         Anchor         Everything     Cancel         Fail
    Offered        AwaitingAnchor Rejected       illegal        illegal        Cancelled      Failed
    AwaitingAnchor illegal        illegal        AwaitingRest   illegal        Cancelled      Failed
    AwaitingRest   illegal        illegal        illegal        Complete       Cancelled      Failed
    Complete       -              -              -              -              -              -
    Rejected       -              -              -              -              -              -
    Failed         -              -              -              -              -              -
    Cancelled      -              -              -              -              -              -
    ");
}
