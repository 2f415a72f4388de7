use counterfoil_pg::{Role, Scope, Verdict};
use counterfoil_test::{Server, database};

use crate::rows::{NAME, begin, name, rename};

#[tokio::test]
async fn cut_before_commit_nothing_is_committed() {
    for server in Server::ALL {
        let test = database(server).await;
        let id = test.tenant("old").await;
        let proxy = test.proxy().await;
        let db = test.database_through(&proxy);
        let fault = proxy.cut_before_commit(2);

        let tx = begin(&db).await.unwrap();
        rename(&tx, id, "first").await.unwrap();
        tx.commit().await.unwrap();
        assert!(!fault.has_fired());

        let tx = begin(&db).await.unwrap();
        rename(&tx, id, "second").await.unwrap();
        assert_eq!(tx.commit().await.unwrap_err().verdict, Verdict::Unknown);
        fault.fired().await;
        assert_eq!(name(&test, id).await, "first");
        // Only that connection is gone.
        begin(&db).await.unwrap().commit().await.unwrap();
    }
}

#[tokio::test]
async fn cut_after_commit_it_is_committed_and_the_client_does_not_know() {
    for server in Server::ALL {
        let test = database(server).await;
        let id = test.tenant("old").await;
        let proxy = test.proxy().await;
        let db = test.database_through(&proxy);
        for round in 0..10 {
            let fault = proxy.role(Role::Ops).cut_after_commit(1);
            let new = format!("round {round}");
            let tx = begin(&db).await.unwrap();
            rename(&tx, id, &new).await.unwrap();
            assert_eq!(tx.commit().await.unwrap_err().verdict, Verdict::Unknown);
            assert!(fault.has_fired());
            // At once: the reply was thrown away, so it had been given.
            assert_eq!(name(&test, id).await, new);
        }
    }
}

#[tokio::test]
async fn cut_while_committing_the_client_does_not_know_either() {
    let test = database(Server::Pg15).await;
    let proxy = test.proxy().await;
    let db = test.database_through(&proxy);
    let fault = proxy.any().cut_while_committing(1);
    let tx = begin(&db).await.unwrap();
    assert_eq!(tx.commit().await.unwrap_err().verdict, Verdict::Unknown);
    assert!(fault.has_fired());
}

#[tokio::test]
async fn cut_in_mid_batch_nothing_is_committed() {
    for server in Server::ALL {
        let test = database(server).await;
        let (a, b) = (test.tenant("a").await, test.tenant("b").await);
        let proxy = test.proxy().await;
        let db = test.database_through(&proxy);
        // The look at the session, the first rename, the second.
        let fault = proxy.cut_mid_batch(3);
        let tx = begin(&db).await.unwrap();
        rename(&tx, a, "x").await.unwrap();
        assert!(!fault.has_fired());
        assert!(rename(&tx, b, "x").await.is_err());
        assert!(fault.has_fired());
        assert_eq!(tx.commit().await.unwrap_err().verdict, Verdict::RolledBack);
        assert_eq!(
            (name(&test, a).await, name(&test, b).await),
            ("a".to_owned(), "b".to_owned())
        );
    }
}

#[tokio::test]
async fn a_fault_of_one_role_leaves_the_others_alone() {
    let test = database(Server::Pg15).await;
    let a = test.tenant("a").await;
    let proxy = test.proxy().await;
    let db = test.database_through(&proxy);
    let fault = proxy.lane().cut_before_commit(1);
    begin(&db).await.unwrap().commit().await.unwrap();
    assert!(!fault.has_fired());
    let tx = db.pool(Role::Lane).begin(&Scope::tenants(vec![a])).await.unwrap();
    assert!(tx.commit().await.is_err());
    assert!(fault.has_fired());
}

#[tokio::test]
async fn a_held_commit_waits_and_then_goes_on() {
    for server in Server::DIRECT {
        let test = database(server).await;
        let id = test.tenant("old").await;
        let proxy = test.proxy().await;
        let db = test.database_through(&proxy);
        let hold = proxy.hold_commit(1);
        let committing = tokio::spawn(async move {
            let tx = begin(&db).await.unwrap();
            rename(&tx, id, "new").await.unwrap();
            tx.commit().await
        });
        hold.reached().await;
        assert_eq!(name(&test, id).await, "old");
        assert!(!committing.is_finished());
        hold.release();
        committing.await.unwrap().unwrap();
        assert_eq!(name(&test, id).await, "new");
    }
}

#[tokio::test]
async fn a_hold_that_is_dropped_lets_go() {
    let test = database(Server::Pg15).await;
    let proxy = test.proxy().await;
    let db = test.database_through(&proxy);
    let hold = proxy.any().hold_mid_batch(1);
    let beginning = tokio::spawn(async move { begin(&db).await.map(drop) });
    hold.reached().await;
    drop(hold);
    beginning.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_goes_through_is_counted() {
    for server in Server::ALL {
        let test = database(server).await;
        let id = test.tenant("a").await;
        let proxy = test.proxy().await;
        let db = test.database_through(&proxy);
        for _ in 0..3 {
            let tx = begin(&db).await.unwrap();
            tx.query_one(NAME, &[&id.0]).await.unwrap();
            tx.commit().await.unwrap();
        }
        let seen = proxy.seen();
        assert_eq!(
            (seen.connections, seen.begins, seen.commits, seen.rollbacks),
            (1, 3, 3, 0)
        );
        assert_eq!((seen.binds, seen.executes), (6, 6));
        // Each of the two is named once; behind a pooler nothing is.
        let named = if server == Server::PgBouncer { 0 } else { 2 };
        assert_eq!(seen.named_parses, named, "{server:?}: {seen:?}");
        assert!(seen.parses >= seen.named_parses);
    }
}

#[tokio::test]
async fn while_it_is_shut_nobody_gets_through() {
    let test = database(Server::Pg15).await;
    let proxy = test.proxy().await;
    let db = test.database_through(&proxy);
    let tx = begin(&db).await.unwrap();
    proxy.shut();
    proxy.cut_all();
    assert!(tx.query_one(NAME, &[&1_i64]).await.is_err());
    drop(tx);
    assert!(begin(&db).await.is_err());
    proxy.open();
    begin(&db).await.unwrap();
}

#[tokio::test]
async fn a_statement_can_be_cancelled_through_it() {
    let test = database(Server::Pg15).await;
    let id = test.tenant("a").await;
    let proxy = test.proxy().await;
    let db = test.database_through(&proxy);
    let mut other = test.admin().await;
    let locking = other.transaction().await.unwrap();
    locking
        .execute("SELECT FROM counterfoil.tenant FOR UPDATE", &[])
        .await
        .unwrap();
    let tx = begin(&db).await.unwrap();
    // Its lock is held, so the rollback has to cancel it first.
    let waiting = tokio::time::timeout(std::time::Duration::from_millis(100), rename(&tx, id, "x")).await;
    assert!(waiting.is_err());
    tx.rollback().await;
    assert_eq!(proxy.seen().cancels, 1);
}
