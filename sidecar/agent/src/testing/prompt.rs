//! One prompt, as every way to code it has it: how long it is, where its KV lies, and how it is coded.

use lynx_kernels::Profile;

use super::gpu::{PAGE, SHAPE};
use crate::coding::{Coding, Descriptor};
use crate::identity::profile_name;
use crate::method::Method;

/// The last block, and the last page, are partial.
pub(crate) const TOKENS: u32 = 300;
/// Blocks of a host's pool, in no order, and not all of them.
pub(crate) const BLOCKS: [u32; 5] = [3, 0, 4, 1, 6];

/// Pages of a GPU's, likewise.
pub(crate) fn pages() -> Vec<u32> {
    let count = TOKENS.div_ceil(PAGE);
    (0..count).rev().map(|page| page * 2 % 41).collect()
}

pub(crate) fn coding(method: Method, profile: &Profile) -> Coding {
    let descriptor = Descriptor {
        method: lynx_proto::peer::v1::Method::from(method).into(),
        prompt_tokens: TOKENS,
        from_token: 0,
        anchor_k_eighths: 28,
        anchor_v_bits: 3,
        profile: profile_name(profile),
    };
    Coding::new(SHAPE, &descriptor).unwrap()
}
