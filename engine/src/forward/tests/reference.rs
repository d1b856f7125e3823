//! What an independent implementation makes of three prompts.
//!
//! It was written in numpy for this purpose, straight from the architecture: weights decoded to 32 bits by the `gguf` Python
//! package (0.19), the rotary embedding on interleaved pairs as the file has them, one pass over the whole sequence
//! per token, no cache, no kernels. The closest two best tokens came in any of these steps was 0.012.

use crate::TokenId;

/// A prompt, the 32 tokens that follow greedily, and some logits after the prompt.
pub(super) struct Reference {
    pub(super) prompt: &'static [TokenId],
    pub(super) next: &'static [TokenId],
    pub(super) logits: [(TokenId, f32); 6],
}

pub(super) const REFERENCES: [Reference; 3] = [
    // "The capital of France is"
    Reference {
        prompt: &[504, 3575, 282, 4649, 314],
        next: &[
            7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33, 40, 29, 32, 33, 29, 34, 34,
            216, 33, 34, 42, 33, 34, 42, 37, 35, 30, 2, 198, 1,
        ],
        logits: [
            (0, 1.6136),
            (1, -11.8719),
            (100, 1.3192),
            (1000, 2.8672),
            (10000, 6.7854),
            (49151, -7.9939),
        ],
    },
    // "def fibonacci(n):\n    "
    Reference {
        prompt: &[1604, 3987, 46477, 24, 94, 727, 2367],
        next: &[
            753, 3987, 46477, 24, 94, 727, 466, 585, 304, 1758, 216, 32, 42, 7396, 1003, 216, 33,
            466, 4698, 304, 1758, 216, 33, 42, 7396, 1003, 216, 33, 466, 1745, 42, 7396,
        ],
        logits: [
            (0, 13.7960),
            (1, 3.9647),
            (100, 7.0721),
            (1000, 4.6775),
            (10000, 7.1296),
            (49151, 8.8430),
        ],
    },
    // "Once upon a time, in a small village by the sea, there lived"
    Reference {
        prompt: &[
            6403, 1980, 253, 655, 28, 281, 253, 1165, 6560, 411, 260, 3426, 28, 665, 4161,
        ],
        next: &[
            253, 9357, 284, 1942, 4166, 3365, 3906, 4075, 30, 2306, 436, 253, 10632, 11239, 259,
            284, 761, 800, 2428, 28, 1285, 253, 1805, 284, 3953, 22873, 3365, 659, 6172, 30, 198,
            198,
        ],
        logits: [
            (0, -8.9656),
            (1, -14.7847),
            (100, -10.8590),
            (1000, -12.5906),
            (10000, -6.9329),
            (49151, -21.7360),
        ],
    },
];
