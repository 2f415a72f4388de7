//! What the program says of itself, and the pages that have to say the same.
//!
//! One snapshot holds the help of all commands, another what they print, in the order of a session.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Output;

use crate::running::{BINARY, Folder, Up, command, root};

fn run(data: &Path, args: &[&str]) -> Output {
    command(BINARY)
        .env("COUNTERFOIL_DATA", data)
        .args(args)
        .output()
        .expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The help of every command, by what is typed before `--help`.
fn helps() -> Vec<(Vec<String>, String)> {
    let mut helps = Vec::new();
    let mut open = vec![Vec::<String>::new()];
    while let Some(path) = open.pop() {
        let output = command(BINARY)
            .args(&path)
            .arg("--help")
            .output()
            .expect("the program runs");
        assert!(output.status.success(), "{path:?}");
        let help = text(&output.stdout);
        let commands = help
            .lines()
            .skip_while(|line| *line != "Commands:")
            .skip(1)
            .take_while(|line| !line.is_empty());
        // Continued lines are indented deeper.
        let names = commands.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
        let names: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
        for name in names.iter().rev().filter(|name| **name != "help") {
            open.push(path.iter().cloned().chain([(*name).to_owned()]).collect());
        }
        helps.push((path, help));
    }
    helps
}

#[test]
fn every_command_explains_itself() {
    let mut said = String::new();
    for (path, help) in helps() {
        let path: String = path.iter().map(|name| format!("{name} ")).collect();
        write!(said, "$ counterfoil {path}--help\n{help}\n").expect("a string grows");
    }
    // Trailing spaces are clap's, and nothing to look at.
    let said: String = said.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    insta::assert_snapshot!("help", said);
}

/// The words of `text` that start with `start`.
fn words<'a>(text: &'a str, start: &str) -> BTreeSet<&'a str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_')))
        .filter(|word| word.starts_with(start))
        .collect()
}

#[test]
fn the_page_of_the_command_line_has_every_flag_variable_and_key() {
    let page = fs::read_to_string(root().join("docs/reference/cli.md")).expect("the page");
    let mut missing = BTreeSet::new();
    for (path, help) in helps() {
        let name = format!("counterfoil {}", path.join(" "));
        if !path.is_empty() && !help.contains("Commands:") && !page.contains(&name) {
            missing.insert(name);
        }
        for word in words(&help, "--").into_iter().chain(words(&help, "COUNTERFOIL_")) {
            if word != "--" && !page.contains(&format!("`{word}")) {
                missing.insert(word.to_owned());
            }
        }
    }
    for key in keys() {
        if !page.contains(&format!("`{key}`")) && !page.contains(&format!("`[{key}]`")) {
            missing.insert(key);
        }
    }
    assert_eq!(missing, BTreeSet::new(), "docs/reference/cli.md");
}

/// The keys of counterfoil.toml: the complaint about one that is not there names them all.
fn keys() -> BTreeSet<String> {
    let folder = Folder::new("keys");
    let mut keys = BTreeSet::new();
    for section in ["", "[lanes]\n", "[limits]\n"] {
        fs::write(folder.0.join("counterfoil.toml"), format!("{section}nonsense = 1\n")).expect("a settings file");
        let complaint = text(&run(&folder.0, &["stub", "k"]).stderr);
        let (_, expected) = complaint.split_once("expected one of ").expect("the keys there are");
        keys.extend(expected.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    assert!(keys.len() > 15, "{keys:?}");
    keys
}

/// A session with a server, as it looks to whoever types it.
struct Session {
    up: Up,
    folder: Folder,
    said: String,
}

impl Session {
    fn start() -> Self {
        let folder = Folder::new("help");
        let up = Up::start(&folder.0.join("data"));
        Self {
            up,
            folder,
            said: String::new(),
        }
    }

    fn run(&mut self, args: &[&str]) {
        let output = run(&self.up.data, args);
        let status = output.status.code().expect("an exit status");
        writeln!(self.said, "$ counterfoil {}", args.join(" ")).expect("a string grows");
        self.said += &text(&output.stdout);
        self.said += &text(&output.stderr)
            .lines()
            .map(|line| format!("! {line}\n"))
            .collect::<String>();
        if status != 0 {
            writeln!(self.said, "(exit status {status})").expect("a string grows");
        }
        self.said.push('\n');
    }

    fn get(&self, path: &str) -> String {
        let key = fs::read_to_string(self.up.data.join("operator.key")).expect("the operator's key");
        let header = format!("Authorization: Bearer {}", key.trim());
        let output = command("curl")
            .args([
                "-sS",
                "--fail",
                "-H",
                &header,
                &format!("http://{}{path}", self.up.address),
            ])
            .output()
            .expect("curl");
        assert!(output.status.success(), "{path}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}

#[test]
fn commands_print_what_they_always_print() {
    let mut session = Session::start();
    let journal = session.folder.0.join("books.csv");
    let again = session.folder.0.join("again.csv").display().to_string();
    fs::write(
        &journal,
        "key,date,description,account,asset,amount\n\
         t-1,2026-01-01,Opening,cash,EUR,100.50\n\
         t-1,2026-01-01,Opening,equity,EUR,-100.50\n\
         t-2,2026-01-02,One leg is missing,cash,EUR,-3\n",
    )
    .expect("a journal");
    let journal = journal.to_str().expect("UTF-8").to_owned();
    for args in [
        &["tenant", "list"][..],
        &[
            "tenant",
            "create",
            "shop",
            "--zone",
            "europe/berlin",
            "--format",
            "json",
        ],
        &["tenant", "create", "shop", "--zone", "Europe/Nowhere"],
        &[
            "tenant",
            "create",
            "kiosk",
            "--rounding",
            "half_even",
            "--key",
            "k-1",
            "--format",
            "json",
        ],
        &["tenant", "create", "kiosk", "--rounding", "half_even", "--key", "k-1"],
        &["tenant", "create", "kiosk", "--key", "k-1"],
        &["tenant", "create", "kiosk", "--collation", "no-such"],
        &["tenant", "list"],
        &["key", "create", "--tenant", "2", "--label", "till"],
        &["key", "create", "--tenant", "77"],
        &["key", "list"],
        &["key", "list", "--format", "json"],
        &["key", "revoke", "2"],
        &["key", "revoke", "77"],
        &["import", "journal", &journal],
        &["import", "journal", &journal, "--format", "json"],
        &["import", "journal", &journal, "--format", "json", "--rejected", &again],
        &["import", "journal", "/nowhere.csv"],
        &["accounts"],
        &["accounts", "--format", "json"],
        &["accounts", "--format", "csv", "--prefix", "c"],
        &["stub", "never-sent"],
        &["stub", "never-sent", "--format", "json"],
        &["stub", "two words"],
        &["check"],
        &["check", "--format", "json"],
        &["bench", "list"],
        &["init"],
        &["up", "--listen", "nonsense"],
        &["accounts", "--database-url", "nonsense"],
        &["acounts"],
    ] {
        session.run(args);
    }
    let rejected = fs::read_to_string(session.folder.0.join("books.rejected.csv")).expect("an error file");
    write!(session.said, "books.rejected.csv\n{rejected}").expect("a string grows");
    let said = session
        .said
        .replace(session.folder.0.to_str().expect("UTF-8"), "/folder")
        .replace(&format!("process {}", session.up.pid()), "process <pid>");
    insta::assert_snapshot!("output", steady(&said));
}

/// Without what differs from run to run: API keys, of which lists show the beginning, and times.
fn steady(said: &str) -> String {
    let mut out = String::new();
    let mut rest = said;
    while let Some(next) = rest.chars().next() {
        let time = rest
            .find('Z')
            .filter(|_| rest.starts_with("20") && rest.as_bytes().get(10) == Some(&b'T'));
        let (length, token) = if let Some(key) = rest.strip_prefix("cf_") {
            (
                3 + key.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(key.len()),
                "<key>",
            )
        } else if let Some(end) = time {
            (end + 1, "<time>")
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        };
        out += token;
        rest = &rest[length..];
    }
    out
}

#[test]
fn the_page_of_metrics_has_every_metric_and_no_other() {
    let session = Session::start();
    // So that there are requests to be counted.
    session.get("/v1/tenants");
    let served = session.get("/metrics");
    let served: BTreeSet<_> = served
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.split_once(' ').expect("a name and a type"))
        .collect();
    let page = fs::read_to_string(root().join("docs/reference/metrics.md")).expect("the page");
    let described: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `counterfoil_"))
        .filter_map(|line| {
            let (name, rest) = line.split_once("` | ")?;
            let kind = rest.split(|c: char| !c.is_ascii_lowercase()).next()?;
            matches!(kind, "gauge" | "counter" | "histogram" | "summary")
                .then(|| (format!("counterfoil_{name}"), kind.to_owned()))
        })
        .collect();
    let served: BTreeSet<_> = served
        .into_iter()
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    assert_eq!(described, served, "docs/reference/metrics.md, and what /metrics says");
}
