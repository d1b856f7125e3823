//! The greedy order of a head's words.

/// The list of channels in which each next word lowers `sum(weight_c * 4^-bits_c)` most, once every channel has a bit;
/// among equals the lowest channel first.
pub(super) fn greedy(weights: &[f64]) -> Vec<u8> {
    let mut bits = vec![0u8; weights.len()];
    let mut list = Vec::with_capacity(weights.len() * 8);
    for word in 0..weights.len() * 8 {
        let in_first_plane = word < weights.len();
        let open = bits
            .iter()
            .enumerate()
            .filter(|(_, b)| if in_first_plane { **b == 0 } else { **b < 8 });
        let value = |channel: usize, bits: u8| weights[channel] * 0.25f64.powi(i32::from(bits));
        // `max_by` would take the last of equals.
        let best = open
            .rev()
            .max_by(|(c, b), (d, e)| value(*c, **b).total_cmp(&value(*d, **e)));
        let Some((channel, _)) = best else { break };
        bits[channel] += 1;
        list.extend(u8::try_from(channel));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_sixteen_times_as_heavy_gets_two_bits_more() {
        let list = greedy(&[1.0, 16.0, 1.0]);
        assert_eq!(list[..3], [1, 0, 2]);
        assert_eq!(list[3..6], [1, 1, 0]);
        assert_eq!(list.len(), 24);
        let zero = greedy(&[0.0, 0.0]);
        assert_eq!(zero, [0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]);
    }
}
