//! Prints the tables of made-up runs and writes their page: `cargo run -p lynx --example timeline -- page.html`.

mod sample;

use std::io::{self, Write as _};
use std::{env, fs};

use lynx::rows::TtftRow;
use lynx::table;

fn main() -> anyhow::Result<()> {
    let page = sample::page();
    let rows = TtftRow::of_all(&page.runs);
    let mut out = io::stdout().lock();
    table::write_runs(&mut out, &rows)?;
    writeln!(out)?;
    table::write_summary(&mut out, &rows)?;
    if let Some(path) = env::args_os().nth(1) {
        fs::write(path, page.html())?;
    }
    Ok(())
}
