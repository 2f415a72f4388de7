use std::collections::BTreeMap;

use counterfoil_migrate::{Error, Existing, Init, init};
use counterfoil_pg::{Client, Role, Tls, connect_admin};
use counterfoil_test::{PASSWORD, Server, TestDatabase, empty_database};

pub fn wanted(dbname: &str) -> Init {
    let passwords = Role::ALL.into_iter().map(|role| (role, PASSWORD.to_owned())).collect();
    Init {
        dbname: dbname.to_owned(),
        create_database: false,
        passwords,
        existing: Existing::Keep,
    }
}

async fn init_of(test: &TestDatabase) -> Result<(), Error> {
    init(&test.admin_config(), &Tls::default(), &wanted(&test.name)).await
}

/// Everything that init makes, as text.
pub async fn made(admin: &Client) -> Vec<String> {
    let rows = admin
        .query(
            "SELECT concat_ws(' ', 'schema', nspname, nspowner::regrole, nspacl) FROM pg_namespace WHERE nspname = 'counterfoil'
             UNION ALL
             SELECT concat_ws(' ', 'role', rolname, rolsuper, rolcanlogin, rolbypassrls, rolcreaterole, rolcreatedb)
             FROM pg_roles WHERE rolname LIKE 'counterfoil\\_%'
             UNION ALL
             SELECT concat_ws(' ', 'limits', setrole::regrole, setconfig) FROM pg_db_role_setting
             WHERE setrole::regrole::text LIKE 'counterfoil\\_%'
             ORDER BY 1",
            &[],
        )
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn twice_is_as_good_as_once() {
    for server in Server::DIRECT {
        let test = empty_database(server).await;
        init_of(&test).await.unwrap();
        let admin = test.admin().await;
        let first = made(&admin).await;
        init_of(&test).await.unwrap();
        assert_eq!(made(&admin).await, first);
        assert_eq!(
            first
                .iter()
                .filter(|line| line.starts_with("role "))
                .cloned()
                .collect::<Vec<_>>(),
            ["app", "lane", "ops", "owner", "report"].map(|role| format!("role counterfoil_{role} f t f f f"))
        );
        let schema = first.iter().find(|line| line.starts_with("schema ")).unwrap();
        assert!(
            schema.starts_with("schema counterfoil counterfoil_owner {counterfoil_owner=UC/"),
            "{schema}"
        );
        assert!(
            schema.contains("counterfoil_app=U/") && !schema.contains("{=") && !schema.contains(",="),
            "{schema}"
        );
    }
}

#[tokio::test]
async fn many_at_once_in_many_databases_all_succeed() {
    for server in Server::DIRECT {
        let tests = [
            empty_database(server).await,
            empty_database(server).await,
            empty_database(server).await,
        ];
        // Two for each database: they collide on the schema as well as on the roles.
        let both = [0, 0, 1, 1, 2, 2].map(|i| {
            let (admin, wanted) = (tests[i].admin_config(), wanted(&tests[i].name));
            tokio::spawn(async move { init(&admin, &Tls::default(), &wanted).await })
        });
        for one in both {
            one.await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn the_database_is_made_when_asked_for_and_only_then() {
    let server = Server::Pg15;
    // Only the name is needed: it is dropped at the end like any other.
    let test = empty_database(server).await;
    let admin = connect_admin(&server.admin(), &Tls::default()).await.unwrap();
    admin
        .batch_execute(&format!("DROP DATABASE {}", test.name))
        .await
        .unwrap();
    let mut wanted = wanted(&test.name);
    let error = init(&server.admin(), &Tls::default(), &wanted).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("there is no database {} at ", test.name)),
        "{error}"
    );

    wanted.create_database = true;
    init(&server.admin(), &Tls::default(), &wanted).await.unwrap();
    init(&server.admin(), &Tls::default(), &wanted).await.unwrap();
    let row = test
        .admin()
        .await
        .query_one("SELECT pg_encoding_to_char(encoding)::text, datcollate::text FROM pg_database WHERE datname = current_database()", &[])
        .await
        .unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("UTF8", "C"));
}

#[tokio::test]
async fn each_role_has_its_limits_when_it_connects() {
    let expected: &[(Role, &str, &str)] = &[
        (Role::App, "statement_timeout", "15s"),
        (Role::App, "lock_timeout", "5s"),
        (Role::App, "idle_in_transaction_session_timeout", "30s"),
        (Role::App, "plan_cache_mode", "auto"),
        (Role::Lane, "plan_cache_mode", "force_generic_plan"),
        (Role::Lane, "jit", "off"),
        (Role::Lane, "statement_timeout", "15s"),
        (Role::Report, "statement_timeout", "5min"),
        (Role::Report, "default_transaction_read_only", "on"),
        (Role::Owner, "statement_timeout", "0"),
        (Role::Ops, "TimeZone", "UTC"),
        (Role::Ops, "search_path", "\"\""),
    ];
    for server in Server::DIRECT {
        let test = empty_database(server).await;
        init_of(&test).await.unwrap();
        for (role, setting, value) in expected {
            let client = connect_admin(&test.settings.config(*role), &Tls::default())
                .await
                .unwrap();
            let row = client.query_one(&format!("SHOW {setting}"), &[]).await.unwrap();
            assert_eq!(row.get::<_, &str>(0), *value, "{setting} of {role:?}");
        }
    }
}

#[tokio::test]
async fn a_password_that_is_not_given_stays() {
    let test = empty_database(Server::Pg15).await;
    init_of(&test).await.unwrap();
    let mut none = wanted(&test.name);
    none.passwords = BTreeMap::new();
    init(&test.admin_config(), &Tls::default(), &none).await.unwrap();
    connect_admin(&test.settings.config(Role::App), &Tls::default())
        .await
        .unwrap();
    assert!(!format!("{:?}", wanted(&test.name)).contains(PASSWORD));
}

#[tokio::test]
async fn our_roles_are_let_into_a_database_that_is_shut_to_the_public() {
    let test = empty_database(Server::Pg18).await;
    test.admin()
        .await
        .batch_execute(&format!("REVOKE ALL ON DATABASE {} FROM PUBLIC", test.name))
        .await
        .unwrap();
    init_of(&test).await.unwrap();
    connect_admin(&test.settings.config(Role::Lane), &Tls::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_schema_of_somebody_else_is_left_alone() {
    let test = empty_database(Server::Pg15).await;
    test.admin()
        .await
        .batch_execute("CREATE SCHEMA counterfoil")
        .await
        .unwrap();
    let error = init_of(&test).await.unwrap_err();
    assert!(
        matches!(&error, Error::ForeignSchema { owner, .. } if owner == "postgres"),
        "{error}"
    );
}

#[tokio::test]
async fn another_encoding_is_refused() {
    let test = empty_database(Server::Pg15).await;
    let admin = connect_admin(&Server::Pg15.admin(), &Tls::default()).await.unwrap();
    admin
        .batch_execute(&format!("DROP DATABASE {}", test.name))
        .await
        .unwrap();
    let latin = format!(
        "CREATE DATABASE {} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'",
        test.name
    );
    admin.batch_execute(&latin).await.unwrap();
    let error = init_of(&test).await.unwrap_err();
    assert!(
        matches!(&error, Error::Encoding { found, .. } if found == "LATIN1"),
        "{error}"
    );
}

#[tokio::test]
async fn a_name_that_needs_quotes_and_one_that_is_none() {
    let server = Server::Pg18;
    let name = format!("Shop \"{}\" o'clock", std::process::id());
    let wanted = Init {
        dbname: name.clone(),
        create_database: true,
        ..wanted("")
    };
    init(&server.admin(), &Tls::default(), &wanted).await.unwrap();
    init(&server.admin(), &Tls::default(), &wanted).await.unwrap();
    let admin = connect_admin(&server.admin(), &Tls::default()).await.unwrap();
    admin
        .batch_execute(&format!("DROP DATABASE \"{}\"", name.replace('"', "\"\"")))
        .await
        .unwrap();
    for bad in ["", "a\0b"] {
        let wanted = Init {
            dbname: bad.to_owned(),
            ..wanted.clone()
        };
        assert!(matches!(
            init(&server.admin(), &Tls::default(), &wanted).await,
            Err(Error::DatabaseName)
        ));
    }
}
