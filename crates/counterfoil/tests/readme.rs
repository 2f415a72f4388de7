//! The walk-through of the README is run as it is written, and says what it is said to say.
//!
//! Nothing in a command is changed. The home folder is one of the test's own; `~/.curlrc` sends what
//! is meant for 127.0.0.1:7070 to the server of the test; the working folder has the binary and the
//! data where a checkout has them. With `COUNTERFOIL_TEST_WRITE=1` the README is given the output it lacks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use crate::running::{BINARY, Folder, Up, command, root};

/// One command, with the lines that it prints.
struct Step {
    command: String,
    output: String,
}

/// What is between two commands stays as it is.
enum Part {
    Text(String),
    Step(Step),
}

/// A command begins with a dollar sign, and stands in a block of `console`; the lines below it are
/// its output.
fn parts(readme: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut inside = false;
    for line in readme.split_inclusive('\n') {
        let fence = line.starts_with("```");
        if let (true, false, Some(command)) = (inside, fence, line.strip_prefix("$ ")) {
            parts.push(Part::Step(Step {
                command: command.to_owned(),
                output: String::new(),
            }));
        } else if let (true, false, Some(Part::Step(step))) = (inside, fence, parts.last_mut()) {
            step.output += line;
        } else {
            parts.push(Part::Text(line.to_owned()));
        }
        if fence {
            inside = line.trim_end() == "```console";
        }
    }
    parts
}

/// What differs from run to run, and nothing else: `x` is a hexadecimal digit, `0` a decimal one.
const PATTERNS: [(&str, &str); 2] = [
    ("id", "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"),
    ("time", "0000-00-00T00:00:00.000000Z"),
];

/// The first id becomes `<id 1>`, and so wherever it comes again: what is told twice must be equal.
fn normal(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    let mut seen: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    while let Some(next) = rest.chars().next() {
        let found = PATTERNS.iter().find(|(_, pattern)| matches(rest, pattern));
        let Some((name, pattern)) = found else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        };
        let (token, after) = rest.split_at(pattern.len());
        let known = seen.entry(name).or_default();
        let number = known.iter().position(|one| *one == token).unwrap_or_else(|| {
            known.push(token);
            known.len() - 1
        });
        write!(out, "<{name} {}>", number + 1).expect("a string grows");
        rest = after;
    }
    out
}

fn matches(text: &str, pattern: &str) -> bool {
    text.len() >= pattern.len()
        && text.bytes().zip(pattern.bytes()).all(|(byte, wanted)| match wanted {
            b'x' => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
            b'0' => byte.is_ascii_digit(),
            _ => byte == wanted,
        })
}

/// Runs the commands in one shell, and returns what each printed.
fn run(commands: &[&str], home: &Path, checkout: &Path, up: &Up) -> Vec<String> {
    const END: &str = "=== end of the command, status";
    let mut script = String::from("exec 2>&1\n");
    for command in commands {
        writeln!(script, "{command}printf '{END} %d\\n' $?").expect("a string grows");
    }
    let mut shell = command("bash")
        .env("HOME", home)
        // As root the data would be looked for in /var/lib.
        .env("COUNTERFOIL_DATA", &up.data)
        .current_dir(checkout)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash");
    shell
        .stdin
        .take()
        .expect("a pipe")
        .write_all(script.as_bytes())
        .expect("bash reads");
    let output = shell.wait_with_output().expect("bash ends");
    let output = String::from_utf8(output.stdout).expect("UTF-8");
    let mut outputs: Vec<String> = Vec::new();
    let mut current = String::new();
    for line in output.split_inclusive('\n') {
        match line.find(END) {
            Some(at) => {
                current += &line[..at];
                assert_eq!(line[at..].trim_end(), format!("{END} 0"), "{current}");
                outputs.push(std::mem::take(&mut current));
            }
            None => current += line,
        }
    }
    assert_eq!(outputs.len(), commands.len(), "every command ends: {outputs:?}");
    outputs
}

#[test]
fn the_walk_through_says_what_it_is_said_to_say() {
    let path = root().join("README.md");
    let readme = fs::read_to_string(&path).expect("the README");
    let mut parts = parts(&readme);

    let folder = Folder::new("readme");
    let (home, checkout) = (folder.0.join("home"), folder.0.join("checkout"));
    let data = home.join(".local/share/counterfoil");
    fs::create_dir_all(&data).expect("a data folder");
    fs::create_dir_all(checkout.join("target/release")).expect("a checkout");
    symlink(BINARY, checkout.join("target/release/counterfoil")).expect("the binary in its place");
    symlink(root().join("data"), checkout.join("data")).expect("the data in its place");
    let up = Up::start(&data);
    fs::write(
        home.join(".curlrc"),
        format!("connect-to = 127.0.0.1:7070:{}\n", up.address),
    )
    .expect("a .curlrc");

    let steps: Vec<&mut Step> = parts
        .iter_mut()
        .filter_map(|part| if let Part::Step(step) = part { Some(step) } else { None })
        .collect();
    assert!(steps.len() > 10, "the walk-through is in blocks of `console`");
    let commands: Vec<&str> = steps.iter().map(|step| step.command.as_str()).collect();
    let outputs = run(&commands, &home, &checkout, &up);

    let said: String = steps
        .iter()
        .map(|step| format!("$ {}{}", step.command, step.output))
        .collect();
    let does: String = steps
        .iter()
        .zip(&outputs)
        .map(|(step, output)| format!("$ {}{output}", step.command))
        .collect();
    if normal(&said) == normal(&does) {
        return;
    }
    if std::env::var_os("COUNTERFOIL_TEST_WRITE").is_some() {
        for (step, output) in steps.into_iter().zip(outputs) {
            step.output = output;
        }
        let text: String = parts
            .into_iter()
            .map(|part| match part {
                Part::Text(text) => text,
                Part::Step(step) => format!("$ {}{}", step.command, step.output),
            })
            .collect();
        fs::write(&path, text).expect("the README is written");
        return;
    }
    panic!("the README says\n\n{said}\nand this is what happens (COUNTERFOIL_TEST_WRITE=1 writes it down):\n\n{does}");
}

#[test]
fn what_is_told_twice_must_be_equal() {
    let one = "01a22ee0-7140-787d-b198-8adaffad9d6c at 2026-11-30T23:53:10.720738Z";
    let other = "01a22ee0-7140-787d-b198-8adaffad9d6d at 2026-11-30T23:53:10.720738Z";
    assert_eq!(normal(one), normal(other));
    assert_ne!(normal(&format!("{one} {one}")), normal(&format!("{one} {other}")));
    assert_eq!(
        normal("2026-11-30 stays, and 23:53:10 too"),
        "2026-11-30 stays, and 23:53:10 too"
    );
}
