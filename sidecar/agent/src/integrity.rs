//! Checksums of what peer control carries and nothing else would show to be wrong: a prompt, and a first token.
//!
//! KV has its own, over the link. With TLS neither would be needed; without it there is only TCP's, which lets some damage
//! through. They are no authentication.

use lynx_kernels::checksum;
use lynx_proto::engine::v1::Sampling;

/// Of a question: its tokens, and how the first token is chosen.
pub(crate) fn of_question(tokens: &[u32], sampling: Option<&Sampling>) -> u64 {
    let sampling = sampling.copied().unwrap_or_default();
    let mut bytes: Vec<u8> = tokens
        .iter()
        .flat_map(|token| token.to_le_bytes())
        .collect();
    bytes.extend(sampling.temperature.to_le_bytes());
    bytes.extend(sampling.top_k.to_le_bytes());
    bytes.extend(sampling.top_p.to_le_bytes());
    bytes.extend(sampling.seed.to_le_bytes());
    checksum(&bytes)
}

/// Of a first token.
pub(crate) fn of_token(token: u32) -> u64 {
    checksum(&token.to_le_bytes())
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
        assert_ne!(of_token(1), of_token(3));
    }
}
