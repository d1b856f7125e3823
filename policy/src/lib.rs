//! The cost model: which anchor width for which link, whether to draft and how deep.
