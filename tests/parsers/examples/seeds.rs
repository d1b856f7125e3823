//! Writes the seeds into the committed corpora.

use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for parser in lynx_parsers::ALL {
        let folder = corpora.join(parser.name);
        fs::create_dir_all(&folder)?;
        for (number, seed) in lynx_parsers::seeds::of(parser.name).iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
