//! Data folders: each belongs to one server at a time and to one database, and what is in one never
//! shuts out what is in another.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use counterfoil_pg::{Config, TenantId};
use counterfoil_test::{PASSWORD, Server, TestCluster, empty_database};
use serde_json::json;

use crate::harness::{Home, House, Up, fresh, open_books};

const UP: [&str; 3] = ["up", "--listen", "127.0.0.1:0"];

/// As `--database-url` takes it, with the superuser and their password.
pub fn url(admin: &Config, dbname: &str) -> String {
    let host = match &admin.get_hosts()[0] {
        tokio_postgres::config::Host::Tcp(host) => host.clone(),
        tokio_postgres::config::Host::Unix(path) => panic!("{} is no host", path.display()),
    };
    format!(
        "postgres://{}:{}@{host}:{}/{dbname}",
        admin.get_user().unwrap(),
        String::from_utf8_lossy(admin.get_password().unwrap()),
        admin.get_ports()[0]
    )
}

/// Without user and password.
fn bare(house: &House) -> String {
    let settings = &house.test.settings;
    format!("postgres://{}:{}/{}", settings.host, settings.port, settings.dbname)
}

fn passwords(home: &Home) -> String {
    let text = fs::read_to_string(home.dir.join("roles.toml")).unwrap();
    text[text.find("[passwords]").unwrap()..].to_owned()
}

#[tokio::test]
async fn init_from_a_second_folder_leaves_the_passwords_of_the_first_alone() {
    let cluster = TestCluster::start(Server::Pg15, &[]).await;
    let admin = cluster.admin();
    let (shop, depot) = (url(&admin, "shop"), url(&admin, "depot"));
    let first = Home::new();
    let init = |url: &str| ["init", "--create-database", "--database-url", url].map(str::to_owned);
    let words = |url: &str| init(url).to_vec();
    let run = async |home: &Home, args: Vec<String>| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        home.run(&args).await
    };
    assert_eq!(run(&first, words(&shop)).await.code, Some(0));
    let mode = fs::metadata(first.dir.join("roles.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    first.ok(&["tenant", "list"]).await;

    // For another database of that server, and for the same one.
    let second = Home::new();
    for url in [&depot, &shop] {
        run(&second, words(url)).await.could_not_run(&[
            "counterfoil_owner is there already",
            "copy roles.toml",
            "--reset-passwords",
        ]);
    }
    assert!(!second.dir.join("roles.toml").exists(), "nothing was begun");
    first.ok(&["tenant", "list"]).await;

    // With its passwords, as the sentence says, both work.
    second.write("roles.toml", &passwords(&first));
    assert_eq!(run(&second, words(&depot)).await.code, Some(0));
    for home in [&first, &second] {
        home.ok(&["tenant", "list"]).await;
    }

    // With passwords that are not theirs nothing is said to be ready.
    let third = Home::new();
    third.write_roles("", "guessed");
    run(&third, words(&depot))
        .await
        .could_not_run(&["does not take the password of counterfoil_", "--reset-passwords"]);
    first.ok(&["tenant", "list"]).await;

    // Whoever asks for it gets new ones, and the others are told how it is.
    let fourth = Home::new();
    let mut reset = words(&depot);
    reset.push("--reset-passwords".to_owned());
    assert_eq!(run(&fourth, reset).await.code, Some(0));
    fourth.ok(&["tenant", "list"]).await;
    first
        .run(&["tenant", "list"])
        .await
        .could_not_run(&["does not take the password of counterfoil_ops", "counterfoil init"]);
}

#[tokio::test]
async fn passwords_that_cannot_be_written_down_are_not_set() {
    let cluster = TestCluster::start(Server::Pg18, &[]).await;
    let home = Home::new();
    // A folder where the file is written before it gets its name.
    fs::create_dir(home.dir.join("roles.new")).unwrap();
    let url = url(&cluster.admin(), "shop");
    let init = ["init", "--create-database", "--database-url", &url];
    home.run(&init)
        .await
        .could_not_run(&["passwords of the roles could not be kept", "nothing was made"]);
    fs::remove_dir(home.dir.join("roles.new")).unwrap();
    // From another folder, even: no role is there whose password nobody knows.
    let other = Home::new();
    other.ok(&init).await;
    other.ok(&["tenant", "list"]).await;
}

#[tokio::test]
async fn a_folder_says_so_when_another_database_is_named_than_its_own() {
    let (house, other) = (House::new(Server::Pg15).await, House::new(Server::Pg18).await);
    let own = bare(&house);
    let ended = house.home.run(&["tenant", "list", "--database-url", &own]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "its own: {ended:?}");

    let elsewhere = bare(&other);
    let told = |text: &str| {
        let (first, second) = (&house.test.name, &other.test.name);
        let lines: Vec<_> = text
            .lines()
            .filter(|line| line.contains("belongs to database"))
            .collect();
        assert!(
            lines.len() == 1 && lines[0].contains(first) && lines[0].contains(second),
            "{text}"
        );
    };
    let ended = house.home.run(&["tenant", "list", "--database-url", &elsewhere]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    told(&ended.stderr);
    let up = Up::start(&house.home, &["--database-url", &elsewhere]).await;
    told(&up.log());
    up.stop().await;
    // Where it does not work, that is the first thing to know.
    let settings = &house.test.settings;
    let home = Home::prepared(&settings.host, settings.port, &house.test.name, "of another server");
    let ended = home.run(&[&UP[..], &["--database-url", &elsewhere]].concat()).await;
    ended.could_not_run(&["does not take the password of counterfoil_"]);
    told(&ended.stderr);
    // A pooler has an address of its own.
    let pooled = [
        "tenant",
        "list",
        "--pooler",
        "transaction",
        "--database-url",
        &elsewhere,
    ];
    assert_eq!(house.home.run(&pooled).await.stderr, "");
    let init = url(&other.test.admin_config(), &other.test.name);
    house
        .home
        .run(&["init", "--database-url", &init])
        .await
        .could_not_run(&["belongs to database", &house.test.name, "--data"]);
}

#[tokio::test]
async fn a_folder_with_a_postgresql_of_its_own_serves_no_other() {
    let empty = empty_database(Server::Pg15).await;
    let home = Home::new();
    home.write_roles("", PASSWORD);
    fs::create_dir_all(home.dir.join("pg/pgdata")).unwrap();
    let url = url(&empty.admin_config(), &empty.name);
    for command in [&UP[..], &["init"], &["tenant", "list"]] {
        home.run(&[command, &["--database-url", &url]].concat())
            .await
            .could_not_run(&["has brought along", &empty.name, "--data"]);
    }
}

#[tokio::test]
async fn two_servers_do_not_share_a_data_folder_whatever_their_database() {
    let house = House::new(Server::Pg15).await;
    let first = Up::start(&house.home, &[]).await;
    let before = fs::read_to_string(house.home.dir.join("server.toml")).unwrap();
    let ended = house.home.run(&UP).await;
    ended.could_not_run(&[
        "another process",
        &first.pid.to_string(),
        &house.home.dir.display().to_string(),
        "stop it first",
    ]);
    // By the address that everybody takes, too: the other server is what is in the way.
    let address = first.address.to_string();
    let ended = house.home.run(&["up", "--listen", &address]).await;
    ended.could_not_run(&["another process", "stop it first"]);
    let after = fs::read_to_string(house.home.dir.join("server.toml")).unwrap();
    assert_eq!(before, after, "the first is still the one that is found");
    let mut client = house.client(&first);
    open_books(&mut client, &["till"]).await;
    // Killed, it is in nobody's way.
    first.kill().await;
    let second = Up::start(&house.home, &[]).await;
    assert_eq!(house.client(&second).account("till", "posted").await, "0.00");
    second.stop().await;
    assert!(!house.home.dir.join("server.toml").exists());
}

#[tokio::test]
async fn a_server_comes_up_while_somebody_is_in_the_way_of_the_rotation_of_stubs() {
    let house = House::new(Server::Pg18).await;
    house.up().await.stop().await;
    // The next generation is due to be made, and a session has the table in a way that lets
    // everybody read and write but nobody attach a partition, as VACUUM does.
    let next = house
        .number("SELECT max(gen)::bigint FROM counterfoil.stub_generation")
        .await;
    house
        .sql(&format!(
            "DROP TABLE counterfoil.stub_{next}; DELETE FROM counterfoil.stub_generation WHERE gen = {next}"
        ))
        .await;
    house
        .sql("BEGIN; LOCK TABLE counterfoil.stub IN SHARE UPDATE EXCLUSIVE MODE")
        .await;
    let up = house.up().await;
    let mut client = house.client(&up);
    open_books(&mut client, &["till"]).await;
    let body = json!({ "key": fresh(), "from": "bank", "to": "till", "amount": "1" });
    assert_eq!(client.post("/transfers", &body).await.status, 201);
    // And it is prepared again, as after an update of the program.
    let init = url(&house.test.admin_config(), &house.test.name);
    house.home.ok(&["init", "--database-url", &init]).await;
    house.sql("COMMIT").await;
    up.stop().await;
    let up = house.up().await;
    let made = format!("SELECT count(*) FROM counterfoil.stub_generation WHERE gen = {next}");
    assert_eq!(house.number(&made).await, 1, "nobody was in the way of the next one");
    up.stop().await;
}

#[tokio::test]
async fn up_works_for_a_user_who_is_not_root() {
    let home = Home::unprivileged();
    let bin = Server::Pg15.bin_dir().display().to_string();
    let mut key = String::new();
    // Made, and found again.
    for round in 0..2 {
        let up = Up::start(&home, &["--pg-bin", &bin]).await;
        if round == 0 {
            key = home.operator_key();
        }
        let mut client = up.client(TenantId(1), &key);
        let ready = client.send("GET", "/readyz", &[], b"").await.unwrap();
        assert_eq!(ready.status, 200, "{}", ready.text());
        if round == 0 {
            open_books(&mut client, &["till"]).await;
        }
        assert!(home.ok(&["accounts"]).await.contains("till"));
        home.ok(&["check"]).await;
        let postmaster = home.postmaster().expect("PostgreSQL runs");
        for process in [up.pid, postmaster.as_raw_nonzero().get().unsigned_abs()] {
            assert_ne!(owner(&format!("/proc/{process}")), 0, "not as root");
        }
        for secret in ["roles.toml", "operator.key", "server.toml", "pg/password"] {
            let path = home.dir.join(secret);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{secret}");
            assert_ne!(owner(path.to_str().unwrap()), 0, "{secret}");
        }
        up.stop().await;
        assert!(home.postmaster().is_none(), "both are stopped");
    }
}

fn owner(path: &str) -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).unwrap().uid()
}
