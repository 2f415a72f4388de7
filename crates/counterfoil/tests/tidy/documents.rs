//! Documents tell the truth about what is where.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::{files, none, read};
use crate::running::root;

/// Every document, the README first.
fn documents() -> Vec<PathBuf> {
    let mut documents = vec![
        PathBuf::from("README.md"),
        PathBuf::from("CHANGELOG.md"),
        PathBuf::from("data/README.md"),
    ];
    documents.extend(files("docs", &["md"]));
    documents
}

/// The text outside of code blocks.
fn prose(text: &str) -> String {
    let mut inside = false;
    let mut out = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            out += line;
            out.push('\n');
        }
    }
    out
}

/// What stands between single backticks, and the text without it.
fn split_code(prose: &str) -> (Vec<&str>, String) {
    let (mut code, mut rest) = (Vec::new(), String::new());
    for (number, part) in prose.split('`').enumerate() {
        if number % 2 == 1 {
            code.push(part);
        } else {
            rest += part;
        }
    }
    (code, rest)
}

/// Where links go: `[text](target)`.
fn links(prose: &str) -> Vec<String> {
    let (_, text) = split_code(prose);
    text.match_indices("](")
        .filter_map(|(at, open)| {
            text[at + open.len()..]
                .split_once(')')
                .map(|(target, _)| target.to_owned())
        })
        .collect()
}

/// The anchors of a document, as GitHub and most others make them of its headings.
fn anchors(text: &str) -> BTreeSet<String> {
    prose(text)
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// `a/b/../c` is `a/c`.
fn simple(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

#[test]
fn every_link_leads_somewhere() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for document in documents() {
        let text = read(&document);
        for link in links(&prose(&text)) {
            if link.contains("://") {
                continue;
            }
            seen += 1;
            let (file, anchor) = link
                .split_once('#')
                .map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() {
                document.clone()
            } else {
                simple(&document.parent().unwrap_or(Path::new("")).join(file))
            };
            let there = root().join(&target).exists();
            if !there || anchor.is_some_and(|anchor| !anchors(&read(&target)).contains(anchor)) {
                wrong.push(format!("{}: {link}", document.display()));
            }
        }
    }
    none(&wrong, "every link in the documents leads somewhere");
    assert!(seen > 20, "the links are found: {seen}");
}

/// Whether it is meant as a path from the root, and not as a pattern of paths.
fn is_path(code: &str) -> bool {
    let top = ["crates/", "docs/", "data/", "scripts/", ".ci/"];
    top.iter().any(|top| code.starts_with(top))
        && code
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'))
}

#[test]
fn every_path_that_documents_name_exists() {
    let (mut wrong, mut of_architecture) = (Vec::new(), 0);
    for document in documents() {
        let prose = prose(&read(&document));
        for code in split_code(&prose).0 {
            if !is_path(code) {
                continue;
            }
            of_architecture += usize::from(document == Path::new("docs/ARCHITECTURE.md"));
            if !root().join(code).exists() {
                wrong.push(format!("{}: {code}", document.display()));
            }
        }
    }
    none(&wrong, "every path that the documents name exists");
    assert!(
        of_architecture > 20,
        "the paths of docs/ARCHITECTURE.md are found: {of_architecture}"
    );
}

#[test]
fn every_document_that_sources_name_exists() {
    let mut wrong = Vec::new();
    for path in files("crates", &["rs", "sql", "toml"]) {
        let text = read(&path);
        for (at, _) in text.match_indices("docs/") {
            let name: String = text[at..]
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.'))
                .collect();
            let name = name.trim_end_matches('.');
            if name.ends_with(".md") && !root().join(name).exists() {
                wrong.push(format!("{}: {name}", path.display()));
            }
        }
    }
    none(&wrong, "every document that a source names exists");
}

#[test]
fn the_index_links_every_document() {
    let index = Path::new("docs/README.md");
    let linked: BTreeSet<_> = links(&prose(&read(index)))
        .iter()
        .map(|link| simple(&Path::new("docs").join(link.split('#').next().unwrap_or_default())))
        .collect();
    let wrong: Vec<_> = files("docs", &["md"])
        .into_iter()
        .filter(|document| document != index && !linked.contains(document))
        .map(|document| document.display().to_string())
        .collect();
    none(&wrong, "docs/README.md links every document, and so every decision");
}

#[test]
fn decisions_are_numbered_and_dated() {
    let decisions = files("docs/decisions", &["md"]);
    let mut wrong = Vec::new();
    for (number, path) in (1..).zip(&decisions) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = read(path);
        if !name.starts_with(&format!("{number:04}-")) || !text.starts_with(&format!("# {number}. ")) {
            wrong.push(format!("{name}: its number is {number}"));
        }
        if !text.contains("\nDate: ") {
            wrong.push(format!("{name}: no date"));
        }
        for heading in ["Context", "Decision", "Consequences"] {
            if !text.contains(&format!("\n## {heading}\n")) {
                wrong.push(format!("{name}: no {heading}"));
            }
        }
    }
    none(
        &wrong,
        "decisions are numbered without a gap, dated, and have three parts",
    );
}

/// The parts of a source, each from one mark to the next; what is before the first is left out, and
/// so is what is after the last.
fn sections(source: &str) -> Vec<String> {
    let mut sections: Vec<Vec<&str>> = Vec::new();
    for line in source.lines() {
        if line.starts_with("// --- ") {
            sections.push(Vec::new());
        } else if let Some(section) = sections.last_mut() {
            section.push(line);
        }
    }
    sections.pop();
    sections
        .into_iter()
        .map(|lines| lines.join("\n").trim_matches('\n').to_owned())
        .collect()
}

/// The page with its blocks of Rust taken from `blocks`, in order; also those it had.
fn with_blocks(page: &str, blocks: &[String]) -> (String, Vec<String>) {
    let (mut text, mut had): (String, Vec<String>) = (String::new(), Vec::new());
    let mut rest = page;
    while let Some((before, block)) = rest.split_once("```rust\n") {
        let (block, after) = block.split_once("\n```\n").expect("a block ends");
        text += &format!(
            "{before}```rust\n{}\n```\n",
            blocks.get(had.len()).map_or(block, String::as_str)
        );
        had.push(block.to_owned());
        rest = after;
    }
    (text + rest, had)
}

#[test]
fn the_page_on_kinds_shows_the_kind_that_is_tested() {
    let page = Path::new("docs/howto/add-a-kind.md");
    let sections = sections(&read(Path::new("crates/intent/tests/add_a_kind.rs")));
    let (should, had) = with_blocks(&read(page), &sections);
    if had == sections {
        return;
    }
    if std::env::var_os("COUNTERFOIL_TEST_WRITE").is_some() && had.len() == sections.len() {
        std::fs::write(root().join(page), should).expect("the page is written");
        return;
    }
    let (shown, tested) = (had.join("\n"), sections.join("\n"));
    let at = shown
        .lines()
        .zip(tested.lines())
        .position(|(shown, tested)| shown != tested);
    let line = |text: &str| {
        text.lines()
            .nth(at.unwrap_or(usize::MAX))
            .unwrap_or("(its end)")
            .to_owned()
    };
    panic!(
        "docs/howto/add-a-kind.md shows\n  {}\nwhere crates/intent/tests/add_a_kind.rs has\n  {}\n\
         ({} and {} parts; COUNTERFOIL_TEST_WRITE=1 copies the code)",
        line(&shown),
        line(&tested),
        had.len(),
        sections.len()
    );
}
