//! Case 13: what stands in the way is said in one sentence, with what to do, and exit status 2.

use std::fs;
use std::net::TcpListener;

use counterfoil_test::{PASSWORD, Server, empty_database};

use crate::harness::{Home, House, Up};

const UP: [&str; 3] = ["up", "--listen", "127.0.0.1:0"];

#[tokio::test]
async fn case_13_the_port_is_taken() {
    let house = House::new(Server::Pg15).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let ended = house.home.run(&["up", "--listen", &address]).await;
    ended.could_not_run(&[&address, "taken by another program", "--listen"]);
    // By another server of ours, too.
    let up = house.up().await;
    let ended = house.home.run(&["up", "--listen", &up.address.to_string()]).await;
    ended.could_not_run(&["taken by another program", "--listen"]);
    // Before a PostgreSQL is made or started.
    let home = Home::new();
    home.run(&["up", "--listen", &address])
        .await
        .could_not_run(&["taken by another program"]);
    assert!(!home.dir.join("pg").exists());
    for nonsense in ["nonsense", "127.0.0.1", "127.0.0.1:99999", "192.0.2.1:80"] {
        house
            .home
            .run(&["up", "--listen", nonsense])
            .await
            .could_not_run(&[nonsense, "--listen takes HOST:PORT"]);
    }
    assert!(house.client(&up).is_alive().await);
}

#[tokio::test]
async fn case_13_a_data_directory_of_another_version() {
    let home = Home::new();
    let pgdata = home.dir.join("pg/pgdata");
    fs::create_dir_all(&pgdata).unwrap();
    fs::write(home.dir.join("pg/counterfoil.lock"), "").unwrap();
    fs::write(pgdata.join("PG_VERSION"), "14\n").unwrap();
    for server in Server::DIRECT {
        let bin = server.bin_dir().display().to_string();
        let ended = home.run(&[&UP[..], &["--pg-bin", &bin]].concat()).await;
        ended.could_not_run(&["was written by PostgreSQL 14", "--pg-bin"]);
    }
    fs::write(pgdata.join("PG_VERSION"), "fourteen\n").unwrap();
    let bin = Server::Pg15.bin_dir().display().to_string();
    home.run(&[&UP[..], &["--pg-bin", &bin]].concat())
        .await
        .could_not_run(&["damaged", "backup"]);
    // Somebody else's folder is left alone.
    let home = Home::new();
    fs::create_dir(home.dir.join("pg")).unwrap();
    fs::write(home.dir.join("pg/thesis.txt"), "precious").unwrap();
    home.run(&[&UP[..], &["--pg-bin", &bin]].concat())
        .await
        .could_not_run(&["not made by Counterfoil", "choose"]);
    assert_eq!(fs::read_dir(home.dir.join("pg")).unwrap().count(), 1);
}

#[tokio::test]
async fn case_13_a_wrong_password() {
    let house = House::new(Server::Pg18).await;
    let settings = &house.test.settings;
    let home = Home::prepared(&settings.host, settings.port, &settings.dbname, "wrong");
    for command in [&UP[..], &["check"], &["tenant", "list"], &["accounts"]] {
        let ended = home.run(command).await;
        ended.could_not_run(&[
            "does not take the password of counterfoil_",
            "ALTER ROLE",
            "counterfoil init",
        ]);
        assert!(!ended.stderr.contains("wrong"), "passwords are never shown: {ended:?}");
    }
    let url = format!(
        "postgres://postgres:wrong@{}:{}/{}",
        settings.host, settings.port, settings.dbname
    );
    let ended = Home::new().run(&["init", "--database-url", &url]).await;
    ended.could_not_run(&["does not take the password of postgres"]);
    assert!(!ended.stderr.contains("wrong"), "{ended:?}");
}

#[tokio::test]
async fn case_13_a_database_without_our_schema() {
    // Of a cluster that has our roles, as that of the other tests.
    let with_roles = House::new(Server::Pg15).await;
    let empty = empty_database(Server::Pg15).await;
    let home = Home::prepared(&empty.settings.host, empty.settings.port, &empty.name, PASSWORD);
    for command in [&UP[..], &["check"], &["tenant", "list"]] {
        home.run(command)
            .await
            .could_not_run(&[&empty.name, "no schema of Counterfoil", "counterfoil init"]);
    }
    // No such database, and nobody there.
    let home = Home::prepared(&empty.settings.host, empty.settings.port, "cf_not_there", PASSWORD);
    home.run(&UP)
        .await
        .could_not_run(&["no database cf_not_there", "create it"]);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let home = Home::prepared("127.0.0.1", nobody, "shop", PASSWORD);
    home.run(&UP)
        .await
        .could_not_run(&["cannot reach PostgreSQL", "start it"]);
    // Nothing was set up at all.
    let home = Home::new();
    home.run(&["check"])
        .await
        .could_not_run(&["nothing has been set up", "counterfoil up", "counterfoil init"]);
    let url = format!(
        "postgres://{}:{}/{}",
        empty.settings.host, empty.settings.port, empty.name
    );
    home.run(&[&UP[..], &["--database-url", &url]].concat())
        .await
        .could_not_run(&["counterfoil init"]);
    drop(with_roles);
}

#[tokio::test]
async fn case_13_a_database_with_a_newer_schema_or_an_older_or_a_changed_one() {
    let house = House::new(Server::Pg18).await;
    let up = house.up().await;
    house
        .sql(
            "INSERT INTO counterfoil.migration (name, checksum, applied_at)
             VALUES ('trade/0001_customer', sha256('x'), now())",
        )
        .await;
    for command in [&UP[..], &["check"], &["tenant", "list"]] {
        house
            .home
            .run(command)
            .await
            .could_not_run(&["newer version", "trade/0001_customer", "run that version"]);
    }
    let admin = house.test.admin_config();
    let url = format!(
        "postgres://{}:{}@{}:{}/{}",
        admin.get_user().unwrap(),
        String::from_utf8_lossy(admin.get_password().unwrap()),
        house.test.settings.host,
        house.test.settings.port,
        house.test.name
    );
    house
        .home
        .run(&["init", "--database-url", &url])
        .await
        .could_not_run(&["newer version", "run that version"]);
    // A server that runs already says that it is not what it was.
    let ready = house.client(&up).send("GET", "/readyz", &[], b"").await.unwrap();
    assert_eq!(ready.status, 503, "{}", ready.text());
    assert_eq!(ready.json()["schema"], "not current");
    // Anybody may read that; why, and of which database, is for the log.
    assert!(!ready.text().contains("newer") && !ready.text().contains(&house.test.name));
    assert!(up.log().contains("newer version"), "{}", up.log());

    house
        .sql("DELETE FROM counterfoil.migration WHERE name LIKE 'trade/%' OR name LIKE 'ledger/%'")
        .await;
    house
        .home
        .run(&UP)
        .await
        .could_not_run(&["lacks", "ledger/", "counterfoil init"]);
    house
        .sql("INSERT INTO counterfoil.migration (name, checksum, applied_at) SELECT 'ledger/0001_ledger', sha256('x'), now()")
        .await;
    house
        .home
        .run(&UP)
        .await
        .could_not_run(&["ledger/0001_ledger", "not the one that was applied"]);
}

#[tokio::test]
async fn case_13_settings_that_are_none() {
    let house = House::new(Server::Pg15).await;
    for (text, says) in [
        ("lines = 4\n", "does not know"),
        ("[lanes]\ncount = \"four\"\n", "cannot use"),
        ("[[[", "does not know"),
    ] {
        house.home.write("counterfoil.toml", text);
        house.home.run(&UP).await.could_not_run(&["counterfoil.toml", says]);
    }
    fs::remove_file(house.home.dir.join("counterfoil.toml")).unwrap();
    house
        .home
        .run(&["check", "--config", "/nowhere.toml"])
        .await
        .could_not_run(&["/nowhere.toml"]);
    house
        .home
        .run(&["check", "--database-url", "mysql://x"])
        .await
        .could_not_run(&["postgres://"]);
    fs::write(house.home.dir.join("roles.toml"), "[passwords]\nlane = 7\n").unwrap();
    house.home.run(&UP).await.could_not_run(&["roles.toml", "restore"]);
    // What the argument parser says is exit status 2 as well.
    for args in [
        &["up", "--lanes", "many"][..],
        &["serve"],
        &["init", "--stub-retention", "0"],
    ] {
        assert_eq!(house.home.run(args).await.code, Some(2), "{args:?}");
    }
}

#[tokio::test]
async fn init_prepares_a_database_twice_and_up_serves_it() {
    for server in Server::DIRECT {
        let test = empty_database(server).await;
        let admin = test.admin_config();
        let url = format!(
            "postgres://{}:{}@{}:{}/{}",
            admin.get_user().unwrap(),
            String::from_utf8_lossy(admin.get_password().unwrap()),
            test.settings.host,
            test.settings.port,
            test.name
        );
        let home = Home::new();
        // The roles are those of all databases of this cluster: with these passwords.
        home.write_roles("", PASSWORD);
        let said = home.ok(&["init", "--database-url", &url]).await;
        assert!(said.contains("is ready") && said.contains("counterfoil up"), "{said}");
        let key = home.operator_key();
        home.ok(&["init", "--database-url", &url]).await;
        assert_eq!(home.operator_key(), key, "the second changes nothing");
        for secret in ["roles.toml", "operator.key"] {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(home.dir.join(secret)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{secret}");
        }
        // Without the URL, which is in the folder now; and with one that has no password in it.
        let bare = format!("postgres://{}:{}/{}", test.settings.host, test.settings.port, test.name);
        for args in [&[][..], &["--database-url", &bare]] {
            let up = Up::start(&home, args).await;
            let mut client = up.client(counterfoil_pg::TenantId(1), &key);
            let ready = client.send("GET", "/readyz", &[], b"").await.unwrap();
            assert_eq!(ready.status, 200, "{}", ready.text());
            let tenants = client.send("GET", "/v1/tenants", &[], b"").await.unwrap().json();
            assert_eq!(
                (
                    &tenants["tenants"][0]["name"],
                    tenants["tenants"].as_array().unwrap().len()
                ),
                (&"first".into(), 1)
            );
            assert_eq!(client.get("/accounts").await.status, 200);
            up.stop().await;
        }
    }
}
