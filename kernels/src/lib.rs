//! What a split is: the KV codec, its scalar truth and its SIMD versions.
//!
//! A *unit* of KV cache (one layer, K or V, up to 512 tokens) is split into segments in order of significance: the
//! parameters, then code words from the most significant bit down, then an exact tail. Any prefix of the words can be
//! merged back to an approximation, and with the tail the BF16 values come back bit for bit. The format is written down
//! in `docs/codec.md`; this crate is its reference.
//!
//! - [`UnitPlan`] says where every byte of a unit is, before any value is known; [`PromptPlan`] lists a prompt's units.
//! - [`Profile`] says which words come first; [`Cuts`] says where the anchor and the refinement steps end.
//! - [`Codec`] splits and merges. Its results don't depend on the [`Simd`] level: all are bit-equal to the scalar one.
//!
//! Refuses to be: a transport (segments are byte vectors), a thread pool (units are independent, the caller schedules
//! them), a float library (BF16 only). A general compressor in its place would neither give usable prefixes nor keep up
//! with memory.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bf16;
mod bits;
mod blocks;
mod checksum;
mod codec;
mod cuts;
mod group;
mod hex;
mod plan;
mod profile;
mod rows;
mod scalar;
mod shape;
#[cfg(test)]
mod testing;
pub mod vectors;

pub use blocks::Blocks;
pub use checksum::{Checksum, checksum};
pub use codec::{Codec, MergeError, Segment, Simd, UnitBuffer};
pub use cuts::{Cuts, CutsError};
pub use plan::{MAX_UNIT_TOKENS, PlanError, PromptPlan, Tile, UnitPlan, UnitRef};
pub use profile::{LayerOrder, Profile, ProfileError, ProfileHash};
pub use rows::{Rows, RowsMut, TileSink, TileSource};
pub use shape::{Kind, KvShape, RawTokens, ShapeError};

/// Tokens of a block: the codec's K groups span one block, and blocks are aligned to absolute positions.
pub const BLOCK_TOKENS: usize = 64;

/// The version of the format. Peers with different versions refuse each other.
pub const CODEC_VERSION: u32 = 1;

/// Fewer coded tokens than this in a block travel raw: their groups' parameters would cost more than the codes save.
pub const MIN_CODED_TOKENS: usize = 16;
