//! The codec's and the link's rows as tables.

use std::io::{self, Write};

use lynx_units::{BitRate, Bytes};

use super::codec::CodecRow;
use super::link::LinkRow;

/// Prints the codec's rows.
///
/// # Errors
/// Those of `out`.
pub fn codec(out: &mut dyn Write, rows: &[CodecRow]) -> io::Result<()> {
    writeln!(
        out,
        "{:<12} {:<7} {:<2} {:>8} {:>6} {:>10} {:>9} {:>9} {:>9}",
        "op", "simd", "of", "head_dim", "planes", "buffer", "GiB/s", "memcpy", "ratio"
    )?;
    for row in rows {
        let buffer = Bytes::new(row.buffer_bytes as u64).to_string();
        writeln!(
            out,
            "{:<12} {:<7} {:<2} {:>8} {:>6} {buffer:>10} {:>9.2} {:>9.2} {:>9.2}",
            row.op,
            row.simd,
            row.kind,
            row.head_dim,
            row.planes,
            row.gib_per_s,
            row.memcpy_gib_per_s,
            row.ratio
        )?;
    }
    Ok(())
}

/// Prints the link's rows.
///
/// # Errors
/// Those of `out`.
pub fn link(out: &mut dyn Write, rows: &[LinkRow]) -> io::Result<()> {
    writeln!(
        out,
        "{:<48} {:>14} {:>14} {:>14} {:>14}",
        "test", "link", "anchor alone", "behind bulk", "goodput"
    )?;
    for row in rows {
        let (link, goodput) = (
            BitRate::from_bits_per_second(row.rate_bps),
            BitRate::from_bits_per_second(row.goodput_bps),
        );
        let [alone, behind] =
            [row.anchor_alone_ms, row.anchor_behind_bulk_ms].map(|ms| format!("{ms:.1} ms"));
        writeln!(
            out,
            "{:<48} {:>14} {alone:>14} {behind:>14} {:>14}",
            row.test,
            link.to_string(),
            goodput.to_string()
        )?;
    }
    Ok(())
}
