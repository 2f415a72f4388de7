//! Who may know whom.

use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, TargetKind};

use super::{none, read};
use crate::running::root;

/// Edges go down this list only; rooms on one line do not know each other. It is the list of
/// DESIGN, with the rooms that are not built yet.
const ROOMS: &[&[&str]] = &[
    &["counterfoil"],
    &["lab", "bench"],
    &["server"],
    &["trade"],
    &["links"],
    &["ledger"],
    &["events"],
    &["global"],
    &["jobs"],
    &["messages"],
    &["intent"],
    &["tenant"],
    &["worker"],
    &["doctor"],
    &["lint"],
    &["migrate"],
    &["pg"],
    &["pg-embedded"],
];

/// May use everything, and is only ever a dev-dependency.
const TEST: &str = "test";

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo metadata")
}

/// The crate's folder: its name without the prefix.
fn room(name: &str) -> Option<&str> {
    if name == "counterfoil" {
        Some(name)
    } else {
        name.strip_prefix("counterfoil-")
    }
}

fn depth(room: &str) -> usize {
    ROOMS
        .iter()
        .position(|line| line.contains(&room))
        .unwrap_or_else(|| panic!("crate {room} is in no line of ROOMS: say where it belongs"))
}

fn each(package: &Package) -> impl Iterator<Item = (&str, DependencyKind)> {
    package
        .dependencies
        .iter()
        .filter_map(|edge| Some((room(&edge.name)?, edge.kind)))
}

#[test]
fn edges_only_go_down() {
    let mut wrong = Vec::new();
    for package in &metadata().packages {
        let from = room(&package.name).expect("a crate of ours");
        for (to, kind) in each(package) {
            let fine = match (from, to) {
                (_, TEST) => kind == DependencyKind::Development,
                (TEST, _) => depth(to) > depth("server"),
                _ => depth(from) < depth(to),
            };
            if !fine {
                wrong.push(format!("{from} needs {to} ({kind:?})"));
            }
        }
    }
    none(
        &wrong,
        "edges go down the list of rooms only, and the test crate is only a dev-dependency",
    );
}

#[test]
fn only_the_binary_needs_benchmarks_and_experiments() {
    let metadata = metadata();
    let wrong: Vec<_> = metadata
        .packages
        .iter()
        .filter(|package| &*package.name != "counterfoil")
        .filter(|package| each(package).any(|(to, _)| matches!(to, "bench" | "lab")))
        .map(|package| package.name.to_string())
        .collect();
    none(&wrong, "the product must not need its benchmarks");
}

#[test]
fn a_crate_is_called_after_its_folder_and_has_one_test_binary() {
    let mut wrong = Vec::new();
    for package in &metadata().packages {
        let folder = package
            .manifest_path
            .parent()
            .and_then(|folder| folder.file_name())
            .unwrap_or_default();
        if room(&package.name) != Some(folder) {
            wrong.push(format!("{} is in crates/{folder}", package.name));
        }
        let tests = package
            .targets
            .iter()
            .filter(|target| target.kind.contains(&TargetKind::Test))
            .count();
        if tests > 1 {
            wrong.push(format!(
                "{} has {tests} test binaries: each links everything once more",
                package.name
            ));
        }
    }
    none(&wrong, "folder = crate name without the prefix, and one test binary");
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let mut wrong = Vec::new();
    for package in &metadata().packages {
        let manifest: toml::Table = read(package.manifest_path.as_std_path()).parse().expect("a manifest");
        let lints = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"))
            .and_then(toml::Value::as_bool);
        if lints != Some(true) {
            wrong.push(package.name.to_string());
        }
    }
    none(&wrong, "every Cargo.toml says `[lints] workspace = true`");
}

#[test]
fn the_architecture_page_lists_the_rooms_there_are() {
    let page = read(Path::new("docs/ARCHITECTURE.md"));
    let listed: Vec<_> = page
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| `crates/")?
                .split_once('`')
                .map(|(room, _)| room.to_owned())
        })
        .collect();
    let mut there: Vec<_> = metadata()
        .packages
        .iter()
        .filter_map(|one| room(&one.name).map(str::to_owned))
        .collect();
    there.sort_by_key(|room| if room == TEST { usize::MAX } else { depth(room) });
    assert_eq!(
        listed, there,
        "the table of docs/ARCHITECTURE.md, in the order of the rooms"
    );
}

#[test]
fn every_library_opens_with_what_it_is() {
    let mut wrong = Vec::new();
    for package in &metadata().packages {
        let path = package.manifest_path.with_file_name("src").join("lib.rs");
        if !path.exists() {
            continue;
        }
        let text = read(path.as_std_path());
        let opening: String = text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .collect::<Vec<_>>()
            .join("\n");
        let places = ["**Owns**", "**Invariants", "**Must not"].map(|word| opening.find(word));
        if places.contains(&None) || !places.is_sorted() {
            wrong.push(path.to_string());
        }
    }
    none(
        &wrong,
        "lib.rs opens with **Owns**, **Invariants** and **Must not**, in this order",
    );
}
