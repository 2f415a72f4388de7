//! Settings out of their range, said in one sentence before anything is started.

use std::fs;

use counterfoil_test::Server;

use crate::harness::{Home, House, Up};
use crate::running::root;

/// The rows `| key | unit | default | range | …` of the tables of `counterfoil.toml` on the page.
fn documented() -> Vec<(String, String, i64, i64)> {
    let page = fs::read_to_string(root().join("docs/reference/cli.md")).expect("the page");
    let mut section = None;
    let mut rows = Vec::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("| key in `[") {
            section = rest.split(']').next();
        } else if !line.starts_with('|') {
            section = None;
        } else if let (Some(section), Some(rest)) = (section, line.strip_prefix("| `")) {
            let cells: Vec<&str> = rest.split(" | ").map(str::trim).collect();
            let range = cells[3]
                .split_once(" to ")
                .unwrap_or_else(|| panic!("no range: {line}"));
            rows.push((
                section.to_owned(),
                cells[0].trim_end_matches('`').to_owned(),
                range.0.parse().unwrap(),
                range.1.parse().unwrap(),
            ));
        }
    }
    rows
}

#[tokio::test]
async fn each_number_has_the_range_that_the_page_says() {
    let home = Home::new();
    let rows = documented();
    assert_eq!(rows.len(), 15, "{rows:?}");
    for (section, key, least, most) in rows {
        for (value, fits) in [
            (least, true),
            (most, true),
            (least - 1, false),
            (most + 1, false),
            (-5, false),
        ] {
            home.write("counterfoil.toml", &format!("[{section}]\n{key} = {value}\n"));
            let ended = home.run(&["stub", "k"]).await;
            if fits {
                // Further than the settings it does not come here.
                ended.could_not_run(&["nothing has been set up"]);
            } else {
                let sentence = format!("{value}, and has to be from {least} to {most}");
                ended.could_not_run(&[&key, &section, &sentence]);
            }
        }
    }
}

#[tokio::test]
async fn lanes_on_the_command_line_have_the_same_range() {
    let house = House::new(Server::Pg15).await;
    for lanes in ["0", "-1", "257", "99999999999"] {
        let ended = house
            .home
            .run(&["up", "--listen", "127.0.0.1:0", "--lanes", lanes])
            .await;
        ended.could_not_run(&["--lanes", lanes, "from 1 to 256"]);
    }
}

#[tokio::test]
async fn a_postgres_with_fewer_connections_than_a_server_takes_is_warned_of() {
    let house = House::new(Server::Pg15).await;
    let few = house.up().await;
    assert!(!few.log().contains("max_connections"), "{}", few.log());
    few.stop().await;
    let home = house.another_home();
    home.write("counterfoil.toml", "[lanes]\ncount = 100\n");
    let many = Up::start(&home, &[]).await;
    // 3 × 100 + 8 + 3 for lanes, 15 for the other roles, 3 for /readyz; of 200 three are reserved.
    assert!(
        many.log()
            .contains("takes up to 329 connections, and PostgreSQL has 197 for everybody: raise its max_connections"),
        "{}",
        many.log()
    );
    many.stop().await;
}

#[tokio::test]
async fn a_file_of_settings_that_is_written_wrongly_is_told_in_its_own_words() {
    let home = Home::new();
    for (text, says) in [
        ("lanes = 4\n", "expected a table"),
        ("limits = [1]\n", "expected a table"),
        ("[lanes]\ncont = 4\n", "unknown field `cont`"),
        ("listen = 7070\n", "expected a string"),
        ("listen\n", "counterfoil.toml"),
    ] {
        home.write("counterfoil.toml", text);
        let ended = home.run(&["stub", "k"]).await;
        ended.could_not_run(&["counterfoil.toml"]);
        assert!(
            ended.stderr.contains(says) && !ended.stderr.contains("struct "),
            "{says}: {ended:?}"
        );
    }
}
