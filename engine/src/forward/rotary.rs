//! The rotary position embedding, in half-split order: channel `i` of a head turns with channel `i + head_dim / 2`, by the
//! position times `theta ^ (-2 i / head_dim)`.

use crate::config::Config;
use crate::panels::{PANEL, Panels};

/// Channels that are turned together: half a panel, so that any multiple of 64 channels splits into them.
const STEP: usize = PANEL / 2;

/// Cosines and sines of the rows' positions: `[row][head_dim / 64]` of 32 channel pairs.
#[derive(Debug, Default)]
pub(crate) struct Rotations {
    steps: usize,
    table: Vec<([f32; STEP], [f32; STEP])>,
}

impl Rotations {
    /// Computes the angles of each row's position, in double precision, because positions reach into the thousands.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the table is kept in the precision that it is used in"
    )]
    pub(crate) fn set(&mut self, config: &Config, positions: impl Iterator<Item = usize>) {
        self.steps = config.head_dim / PANEL;
        self.table.clear();
        let frequencies: Vec<f64> = (0..config.head_dim / 2)
            .map(|i| {
                config
                    .rope_theta
                    .powf(-2.0 * i as f64 / config.head_dim as f64)
            })
            .collect();
        for position in positions {
            for frequencies in frequencies.as_chunks::<STEP>().0 {
                let angles = frequencies.map(|frequency| position as f64 * frequency);
                let cosines = angles.map(|angle| angle.cos() as f32);
                self.table
                    .push((cosines, angles.map(|angle| angle.sin() as f32)));
            }
        }
    }

    /// Turns heads `0..heads`, which are the first panels of `x`.
    pub(crate) fn apply(&self, x: &mut Panels, heads: usize) {
        for head in 0..heads {
            for row in 0..x.rows() {
                for step in 0..self.steps {
                    let (cosines, sines) = &self.table[row * self.steps + step];
                    // Steps of 32 channels, counted from the head's first one.
                    let (first, second) = (step, step + self.steps);
                    let place = |step: usize| (head * self.steps + step / 2, step % 2 * STEP);
                    let a = part(x, place(first), row);
                    let b = part(x, place(second), row);
                    let (mut turned_a, mut turned_b) = (a, b);
                    for i in 0..STEP {
                        turned_a[i] = a[i] * cosines[i] - b[i] * sines[i];
                        turned_b[i] = b[i] * cosines[i] + a[i] * sines[i];
                    }
                    set_part(x, place(first), row, &turned_a);
                    set_part(x, place(second), row, &turned_b);
                }
            }
        }
    }
}

fn part(x: &Panels, (panel, channel): (usize, usize), row: usize) -> [f32; STEP] {
    let mut part = [0.0; STEP];
    part.copy_from_slice(&x.row(panel, row)[channel..channel + STEP]);
    part
}

fn set_part(x: &mut Panels, (panel, channel): (usize, usize), row: usize, part: &[f32; STEP]) {
    x.row_mut(panel, row)[channel..channel + STEP].copy_from_slice(part);
}
