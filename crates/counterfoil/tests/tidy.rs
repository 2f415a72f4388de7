//! The rules of the house that no compiler knows.

mod documents;
mod rooms;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

use crate::running::root;

/// Every file below `folder` with one of these endings, by its path from the root, sorted.
fn files(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(&root().join(folder), &mut |path| {
        if path
            .extension()
            .is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted))
        {
            found.push(path.strip_prefix(root()).expect("below the root").to_owned());
        }
    });
    found.sort();
    assert!(!found.is_empty(), "no {endings:?} below {folder}");
    found
}

fn walk(folder: &Path, see: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() { walk(&path, see) } else { see(&path) }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Panics with all that is wrong at once.
fn none(wrong: &[String], rule: &str) {
    assert!(wrong.is_empty(), "{rule}:\n  {}\n", wrong.join("\n  "));
}
