//! `cargo run --example chroma_table`: the tables of `docs/masks.md` that say where a range of chroma lies.
#![allow(clippy::unwrap_used, reason = "a tool for developers, who want the backtrace")]
#![allow(missing_docs, reason = "an example has no readers but its own")]
#![allow(clippy::print_stdout, reason = "it is run by hand")]

use testkit::chroma;

fn main() {
    let chart = chroma::Chart::new();
    for about in [false, true] {
        let columns = chroma::ASKED.map(|asked| chart.column(asked, about));
        println!("{}", chroma::table(&columns));
    }
}
