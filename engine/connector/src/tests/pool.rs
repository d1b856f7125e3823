//! KV from one pool's file into another's, as agents move it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use lynx_proto::engine::v1::Layout;

/// A prompt's KV in a file.
pub(super) struct Place<'a> {
    pub(super) file: &'a File,
    pub(super) blocks: &'a [u32],
}

/// Copies the KV of the first `tokens` tokens, with the bits of `mask` only. What stands after them is left as it is.
pub(super) fn copy(layout: &Layout, from: &Place<'_>, to: &Place<'_>, tokens: usize, mask: u16) {
    let bytes = usize::try_from(layout.v_offset).unwrap();
    let (channels, rows) = (layout.head_dim as usize, layout.block_tokens as usize);
    for (block, (&source, &target)) in from.blocks.iter().zip(to.blocks).enumerate() {
        let inside = (tokens - block * rows).min(rows);
        for layer in 0..u64::from(layout.layers) {
            for head in 0..u64::from(layout.kv_heads) {
                let tile = layer * layout.layer_stride + head * layout.head_stride;
                // Keys are [channel][token], values [token][channel].
                for (offset, token_stride, channel_stride) in
                    [(0, 1, rows), (layout.v_offset, channels, 1)]
                {
                    let at = |block: u32| u64::from(block) * layout.block_stride + tile + offset;
                    let mut read = vec![0; bytes];
                    from.file.read_exact_at(&mut read, at(source)).unwrap();
                    let mut written = vec![0; bytes];
                    to.file.read_exact_at(&mut written, at(target)).unwrap();
                    for token in 0..inside {
                        for channel in 0..channels {
                            let place = 2 * (token * token_stride + channel * channel_stride);
                            let value = u16::from_le_bytes([read[place], read[place + 1]]) & mask;
                            written[place..place + 2].copy_from_slice(&value.to_le_bytes());
                        }
                    }
                    to.file.write_all_at(&written, at(target)).unwrap();
                }
            }
        }
    }
}
