//! What the text of the sources must be like.

use std::path::Path;

use super::{files, none, read};

/// Lines of a Rust file at the most: beyond that a noun is missing.
const LINES: usize = 600;

/// Longer all the same, with the reason.
const LONGER: &[(&str, &str)] = &[];

#[test]
fn no_file_is_too_long() {
    let mut wrong = Vec::new();
    for path in files("crates", &["rs"]) {
        let allowed = LONGER.iter().any(|(long, _)| Path::new(long) == path);
        let lines = read(&path).lines().count();
        if lines > LINES && !allowed {
            wrong.push(format!("{}: {lines} lines", path.display()));
        }
        if lines <= LINES && allowed {
            wrong.push(format!("{}: {lines} lines, and needs no exception", path.display()));
        }
    }
    none(&wrong, "a file over 600 lines is a sign that a noun is missing");
}

#[test]
fn nothing_is_left_to_be_done() {
    // Put together here, so that this file is not found by itself.
    let marks = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!("));
    let mut wrong = Vec::new();
    for path in files("crates", &["rs"]) {
        for (number, line) in read(&path).lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark.as_str())) {
                wrong.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    none(&wrong, "nothing is left to be done later");
}

#[test]
fn a_file_of_sql_is_one_statement() {
    let mut wrong = Vec::new();
    let statements = files("crates", &["sql"])
        .into_iter()
        .filter(|path| path.iter().any(|part| part == "sql"));
    for path in statements {
        let code = code_of(&read(&path));
        if code.contains(';') {
            wrong.push(format!("{}: one statement, without a semicolon", path.display()));
        }
        if code.trim().is_empty() {
            wrong.push(format!("{}: no statement", path.display()));
        }
    }
    none(&wrong, "in sql/ each file is one statement");
}

/// The statement without its comments and without what is in quotes.
fn code_of(sql: &str) -> String {
    let (mut code, mut rest) = (String::new(), sql);
    while let Some(next) = rest.chars().next() {
        let end = match next {
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
            // A doubled quote ends one literal and begins the next: nothing is lost.
            '\'' | '"' => rest[1..].find(next).map_or(rest.len(), |at| at + 2),
            _ => {
                code.push(next);
                next.len_utf8()
            }
        };
        rest = &rest[end..];
    }
    code
}

#[test]
fn comments_and_quotes_are_no_code() {
    assert_eq!(code_of("SELECT 1 -- ;\n, 'a;''b', \"c;\" /* ; */"), "SELECT 1 \n, ,  ");
}

#[test]
fn the_server_holds_no_sql() {
    let mut wrong = Vec::new();
    for path in files("crates/server/src", &["rs"]) {
        let text = read(&path);
        if text.contains("statements!") || text.contains("SELECT ") || text.contains("INSERT INTO") {
            wrong.push(path.display().to_string());
        }
    }
    none(&wrong, "SQL lives below the server");
}
