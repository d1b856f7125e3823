//! What a split is: the KV codec, its scalar truth and its SIMD versions.
