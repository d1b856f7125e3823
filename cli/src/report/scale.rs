//! The time axis that all methods of a section share.

use super::{Html, push};

/// From 0 to a little after the last event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    end: f64,
    step: f64,
}

impl Axis {
    /// An axis on which `last`, in seconds, still has room at its right.
    pub(super) fn to(last: f64) -> Self {
        let last = if last.is_finite() {
            last.max(1e-3)
        } else {
            1.0
        };
        let end = last * 1.02;
        Self {
            end,
            step: round_step(end / 10.0),
        }
    }

    /// Its right end in seconds.
    pub(super) const fn end(&self) -> f64 {
        self.end
    }

    /// Where a moment is, as a percentage of the width, within 0 and 100; one that is no number is at 0.
    pub(super) fn at(&self, t: f64) -> f64 {
        if t.is_nan() {
            return 0.0;
        }
        (t / self.end * 100.0).clamp(0.0, 100.0)
    }

    /// The moments that have a label.
    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> {
        // At most 10 steps, by the choice of the step.
        let ticks = (0_u8..=10).map(|number| f64::from(number) * self.step);
        ticks.take_while(|tick| *tick <= self.end)
    }

    /// The row with the labels, and the lines through all rows of the figure.
    pub(super) fn html(&self) -> Html {
        let mut html = Html::from("<div class=rule><svg class=grid aria-hidden=true>");
        for tick in self.ticks() {
            let x = self.at(tick);
            push!(
                html,
                "<line x1=\"{x:.3}%\" x2=\"{x:.3}%\" y1=0 y2=\"100%\"/>"
            );
        }
        html.push_str(
            "</svg></div><div class=axis><span>time since the request</span><svg aria-hidden=true>",
        );
        let decimals = if self.step < 0.01 {
            3
        } else if self.step < 0.1 {
            2
        } else {
            usize::from(self.step < 1.0)
        };
        for (tick, number) in self.ticks().zip(0_u8..) {
            let anchor = if tick > 0.0 { "middle" } else { "start" };
            // A narrow window has room for every other one.
            let class = if number % 2 == 1 {
                " class=between"
            } else {
                ""
            };
            push!(
                html,
                "<text{class} x=\"{:.3}%\" y=13 text-anchor={anchor}>{tick:.decimals$} s</text>",
                self.at(tick)
            );
        }
        html.push_str("</svg></div>");
        html
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|digit| digit * power);
    steps
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        for last in [0.001, 0.0123, 0.7, 1.0, 5.0, 9.9, 61.0, 1234.0] {
            let axis = Axis::to(last);
            let ticks: Vec<f64> = axis.ticks().collect();
            assert!((5..=11).contains(&ticks.len()), "{last}: {ticks:?}");
            assert!(axis.end() > last);
        }
        assert_eq!(round_step(0.0003), 0.0005);
        assert_eq!(round_step(6.0), 10.0);
    }

    #[test]
    fn places_stay_on_the_axis() {
        let axis = Axis::to(2.0);
        assert_eq!(axis.at(0.0), 0.0);
        assert_eq!(axis.at(-1.0), 0.0);
        assert_eq!(axis.at(1e9), 100.0);
        assert!((axis.at(1.02) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn an_empty_or_endless_run_still_has_an_axis() {
        for last in [0.0, -3.0, f64::NAN, f64::INFINITY] {
            let axis = Axis::to(last);
            assert!(axis.end() > 0.0 && axis.end().is_finite());
        }
    }
}
