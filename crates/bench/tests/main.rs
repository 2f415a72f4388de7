//! The load against a PostgreSQL of its own; our side is measured by the binary's tests.

use counterfoil_bench::{Error, Options, naive_only, run};

fn options(accounts: u32) -> Options {
    let mut options = Options::new(1, |_| std::process::Command::new("/bin/false"));
    options.pg_bin = std::env::var_os("COUNTERFOIL_TEST_PG15_BIN").map(Into::into);
    // Nothing is compared here.
    options.pg_settings = vec![
        ("fsync".to_owned(), "off".to_owned()),
        ("shared_buffers".to_owned(), "32MB".to_owned()),
    ];
    options.accounts = Some(accounts);
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn the_naive_way_lands_what_its_callers_saw() {
    for name in ["transfers-hot", "transfers-random", "alone"] {
        // Few accounts, so that callers meet: in another order than that of ids they would deadlock.
        let side = naive_only(name, &options(40), |_| {}).await.expect("it is verified");
        assert!(side.per_s > 0.0 && side.p50_ms <= side.p99_ms, "{side:?}");
        assert!(side.landed as f64 >= side.per_s, "{side:?}");
        assert!(
            side.commits_per_s > 0.5 * side.per_s && side.wal_bytes_per_unit > 50.0,
            "{side:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_start_is_said_so_before_anything_is_measured() {
    let error = run("transfers-hot", &options(2), |_| {})
        .await
        .expect_err("there is no server");
    assert!(matches!(error, Error::Server { .. }), "{error}");
    assert!(error.to_string().contains("exit status: 1"), "{error}");
}

#[tokio::test]
async fn an_unknown_name_is_answered_with_the_names_there_are() {
    let error = run("transfer-hot", &options(2), |_| {})
        .await
        .expect_err("no such bench");
    assert!(error.to_string().contains("transfers-hot, transfers-random"), "{error}");
}
