//! Counts the inputs of a folder that reach the code of their target: `reached TARGET FOLDER`.

use std::fs;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(target), Some(folder)) = (args.next(), args.next()) else {
        eprintln!("usage: reached TARGET FOLDER");
        return ExitCode::from(2);
    };
    let Some((_, run)) = dunlin_fuzz::TARGETS.iter().find(|(name, _)| *name == target) else {
        eprintln!("reached: no target {target}");
        return ExitCode::FAILURE;
    };
    let Ok(entries) = fs::read_dir(&folder) else {
        eprintln!("reached: {folder}: it cannot be read");
        return ExitCode::FAILURE;
    };
    let inputs: Vec<Vec<u8>> = entries.flatten().filter_map(|entry| fs::read(entry.path()).ok()).collect();
    let reached = inputs.iter().filter(|input| run(input)).count();
    println!("{target}: {reached} of {} inputs", inputs.len());
    ExitCode::SUCCESS
}
