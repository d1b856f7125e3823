//! Checksums of what peer control carries and nothing else would show to be wrong: a prompt, and a first token.
//!
//! KV has its own, over the link. With TLS neither would be needed; without it there is only TCP's, which lets some damage
//! through. They are no authentication.

use lynx_kernels::checksum;
use lynx_proto::engine::v1::{Logprob, Sampling, TokenLogprobs};

/// Of a question: its tokens, and how the first token is chosen.
pub(crate) fn of_question(tokens: &[u32], sampling: Option<&Sampling>) -> u64 {
    let sampling = sampling.cloned().unwrap_or_default();
    let mut bytes: Vec<u8> = tokens
        .iter()
        .flat_map(|token| token.to_le_bytes())
        .collect();
    bytes.extend(sampling.temperature.to_le_bytes());
    bytes.extend(sampling.top_k.to_le_bytes());
    bytes.extend(sampling.top_p.to_le_bytes());
    bytes.extend(sampling.seed.to_le_bytes());
    let mut biases: Vec<_> = sampling.logit_bias.into_iter().collect();
    biases.sort_unstable_by_key(|(token, _)| *token);
    for (token, bias) in biases {
        bytes.extend(token.to_le_bytes());
        bytes.extend(bias.to_le_bytes());
    }
    bytes.extend(sampling.presence_penalty.to_le_bytes());
    bytes.extend(sampling.frequency_penalty.to_le_bytes());
    if let Some(top) = sampling.top_logprobs {
        bytes.extend(top.to_le_bytes());
    }
    checksum(&bytes)
}

/// Of a first token, and of what is told about it.
pub(crate) fn of_first(token: u32, logprobs: Option<&TokenLogprobs>) -> u64 {
    let mut bytes = token.to_le_bytes().to_vec();
    let known = logprobs
        .into_iter()
        .flat_map(|known| known.chosen.iter().chain(&known.top));
    for Logprob { token, logprob, .. } in known {
        bytes.extend(token.to_le_bytes());
        bytes.extend(logprob.to_le_bytes());
    }
    checksum(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_question_counts() {
        let tokens = [1, 2, 3];
        let sampling = Sampling {
            seed: 7,
            ..Sampling::default()
        };
        let right = of_question(&tokens, Some(&sampling));
        for bit in 0..96 {
            let mut changed = tokens;
            changed[bit / 32] ^= 1 << (bit % 32);
            assert_ne!(of_question(&changed, Some(&sampling)), right);
        }
        assert_ne!(of_question(&tokens, None), right);
        assert_ne!(of_question(&tokens[..2], Some(&sampling)), right);
        assert_ne!(of_first(1, None), of_first(3, None));
        let known = TokenLogprobs {
            chosen: Some(Logprob::default()),
            top: Vec::new(),
        };
        assert_ne!(of_first(1, Some(&known)), of_first(1, None));
        let biased = Sampling {
            logit_bias: [(1, 2.0)].into(),
            ..sampling.clone()
        };
        assert_ne!(of_question(&tokens, Some(&biased)), right);
    }
}
