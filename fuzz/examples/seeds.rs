//! Writes the initial corpora into `fuzz/corpus`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for dunlin_fuzz::seeds::Seed { target, input } in dunlin_fuzz::seeds::all() {
        let folder = corpus.join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(dunlin_fuzz::seeds::name(&input)), input)?;
    }
    Ok(())
}
